"""Requests of `$management`.

Read `operations.py` (which exist, refusals) and `call.py` (a request taken apart), then
the operations: `messages.py`, `schedule.py`, `sessions.py`, `rules.py`. Must not know
links. `partitioned.py` divides a request over the fragments of its entity.
"""
