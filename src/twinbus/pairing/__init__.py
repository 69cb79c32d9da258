"""Paired namespaces: sends go on through an outage of the primary.

Read `options.py` (how an application asks for a pair), `rules/` (what is decided,
without clock, chance or I/O), `shell/` (what carries it out), `pump/` (a backlog queue
on its way home) and `sdk/` (the official client's types). `sync/` is the same for
callers that block. Must not know the server or Spark.
"""
