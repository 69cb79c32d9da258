"""The store on SQLite: one file per namespace.

Read `store.py` first (the parts put together), then `file.py` (the database file, its
process and its faults), `reserve.py` (disk space that is kept free for receiving),
`rows.py` (the transaction and the moves of messages), `old_values.py` (how memory is
undone), `messages.py`, `sessions.py`, `times.py`, `entities.py` and `containers.py`
(counters in memory), then `outbox.py` and `outbox_counters.py`. The statements are in
`sql/`. Must not know the broker's rules.
"""
