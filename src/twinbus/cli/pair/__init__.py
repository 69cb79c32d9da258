"""Commands about a pair of namespaces: `twinbus syphon` and `twinbus backlog`.

Read `options.py` (how a pair is named), then `syphon.py` with `syphon_dry.py` and
`syphon_view.py`, `backlog.py` with `backlog_queues.py`.
"""
