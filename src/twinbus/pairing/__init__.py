"""Paired namespaces: sends go on through an outage of the primary.

Read `options.py` (how an application asks for a pair), `rules/` (what is decided,
without clock, chance or I/O), `shell/` (what carries it out), `pump/` (moves a backlog
queue to the primary) and `sdk/` (the official client's types); `events.py`, `status.py`
and `errors.py` are what an application sees. `sync/` is the same for callers that
block. Must not know the server or Spark.
"""
