"""The rules of the rows, which are the same in every database.

Read `rows.py` (the rules that tie rows together, and the moves of messages), then
`messages.py`, `sessions.py`, `times.py` (with `known_ends.py`, which saves a query in
every turn), `entities.py`, `auditing.py` and `outbox.py`.
`containers.py` and `outbox_counters.py` are the counters in memory, and `old_values.py`
says how memory is undone; `reader.py` looks at rows beside the store. A database gives
the transaction and the statements, each by its name. Must not know which database that
is, nor the broker's rules.
"""
