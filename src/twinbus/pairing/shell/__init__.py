"""What carries out the rules of a pair, on an event loop.

Read `message_sender.py` (what an application sends with), `route.py` (one send through
a pair) or `direct.py` (without one), `outgoing.py`, `pair.py` (decisions carried out)
and `probing.py` (pings); then `factory.py`, `telling.py`, `metrics.py`,
`backlog_queues.py`, `backlog_watch.py` and `syphon.py` (pumps inside an application).
Must not know rules of its own.
"""
