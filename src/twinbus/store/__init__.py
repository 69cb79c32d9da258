"""The queue as SQL: containers, messages, locks and sessions are rows.

Read `base.py` first: the contract of a store, in words, with `records.py` and
`received.py`, what goes in and what comes out, and `nodes.py`, its part about other
nodes. `opening.py` opens stores and finds them on disk, `shards.py` those of one
namespace together, `stand_in.py` takes the place of one that cannot be opened, and
`reading.py` is the contract of looks beside it. Then `tables/`, the rules of rows in
any database, `sqlite/`, the implementation on SQLite, and `postgres/`, the one that
several nodes share. `copying.py` copies from one to the other. `queries.py` and
`migrations.py` load SQL from files. Must not know links, protocols or the broker's
rules.
"""
