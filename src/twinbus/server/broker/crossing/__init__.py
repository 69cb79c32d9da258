"""What goes from one shard of a namespace to another, and a shard that is sick.

Read `parcels.py` (what is carried, as bytes), `outbox.py` (the commands at both ends),
`mover.py` (who carries), then `spool.py` (sends to a sick shard are kept by another)
and `recovery.py` (how a shard comes back). Must not know links, connections or HTTP.
"""
