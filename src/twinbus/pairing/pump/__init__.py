"""Moves one backlog queue to the primary, for the application's syphon and for Spark.

Read `finding.py` (which queues there are), `pump.py` (settings, then chunk by chunk),
`locks.py` (messages in hand, and those that another receiver holds), `destinations.py`
(sending, one entity at a time) and `settling.py` (the journal, and what the backlog
queue is told). Must not know Spark.
"""
