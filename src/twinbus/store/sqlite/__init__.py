"""The store on SQLite: one file per namespace.

Read `store.py` first (the parts put together), then `file.py` (the database file, its
process and its faults), `reserve.py` (disk space that is kept free for receiving),
`transaction.py` (the transaction, and how statements are run), `packs.py` (messages
that arrived together, in one row) and `reader.py` (looks beside the transaction).
`checking.py` looks at files beside a server. The statements are in `sql/`, and what
they mean in `store/tables/`. Must not know the broker's rules.
"""
