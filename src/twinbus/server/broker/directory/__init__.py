"""What exists in a namespace: entities, rules and keys, and what they were set up from.

Read `entity.py` and `entities.py` (queues, topics, subscriptions and their rules),
`keys.py` (authorization rules), `config.py` and `provision.py` (what is configured, and
how it is made), `shards.py` (which shard has which entity), `placement.py` (which host
runs it), `overview.py` (what people are told of both) and `maintenance.py` (purge and
reset). Must not know links, connections or HTTP.
"""
