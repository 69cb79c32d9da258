"""A backlog queue on its way home, for the application's syphon and the one on Spark.

Read `pump.py` (chunk by chunk), `item.py` (a message in hand), `home.py` (one
destination), `gaps.py` (order around messages that another holds), `settling.py` (what
the backlog queue is told); then `ports.py`, `senders.py` and `counts.py`. Must not know
Spark.
"""
