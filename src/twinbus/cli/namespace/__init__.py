"""Commands about what is in a namespace: entities, keys and messages.

Read `settings.py` (settings as options), then `queue.py`, `topic.py`, `subscription.py`
and `rule.py` (entities in a data folder), `namespace.py` (empty an entity or all of it)
and `keys.py` (both in a folder or on a running server), then `message.py` (over AMQP).
Must not know how a server is run, nor pairs of namespaces.
"""
