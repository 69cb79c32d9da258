"""What carries out the rules of a pair, on an event loop.

Read `message_sender.py` (what an application sends with), `route.py` (one send, with a
pair or without), `pair.py` (carries out decisions) and `probing.py` (pings and probes);
then `factory.py`, `joining.py` (how a pair comes to its queues), `telling.py` (events
and metrics), `reporting.py` (events for the secondary), `counting.py` (the ledger),
`backlog_queues.py`, `syphon.py` (pumps inside an application) and `outbox.py` (the
third tier, on local disk). Must not know rules of its own.
"""
