"""The store on PostgreSQL, which several nodes share: one schema per shard.

Read `database.py` (where the database is, what it must be, its schema), `turn_log.py`
(what a node knows of the turns of all nodes), `pipe.py` (the connection) and
`transaction.py` (a turn in the database), then `store.py` (the parts put together),
`reader.py` (looks beside turns) and `watcher.py` (news between nodes, beside turns);
`swept_locks.py` passes over locks that have ended. The statements are in `sql/`, and
what they mean in `store/tables/`.

The truth is in the database. A turn locks the row of its shard, so the turns of all
nodes come one after the other. Each that changes something writes one row into the log
of turns, with the counters (`tables/containers.py`, `tables/outbox_counters.py`) that
it has changed. A node that begins a turn reads the rows since the last one it knows,
together with the lock: none means that its memory is right, otherwise they bring it up
to date. So counters are answered from memory, and all else is asked. Rows that are
written are collected and sent as runs, before the next statement that could see them.

A commit ends the lock before it is durable. Then an empty record is written and waited
for: PostgreSQL's log has one order, so all turns before it are durable too. Nothing is
handed out before that. Must not know the broker's rules.
"""
