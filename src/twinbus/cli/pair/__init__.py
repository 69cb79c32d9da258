"""Commands about a pair of namespaces: `twinbus syphon` and `twinbus backlog`.

Read `options.py` (how a pair is named), then `syphon.py` with `syphon_engine.py` (on
Spark or not), `syphon_application.py` (without Spark), `syphon_dry.py` and
`syphon_view.py`, `backlog.py` with `backlog_queues.py`.
"""
