"""Moves one backlog queue to the primary, for the application's syphon and for Spark.

Read `pump.py` (chunk by chunk), `locks.py` (messages in hand, and those that another
receiver holds), `destinations.py` (sending, one entity at a time), `settling.py` (what
the backlog queue is told), then `ports.py` (settings and journal). Must not know
Spark.
"""
