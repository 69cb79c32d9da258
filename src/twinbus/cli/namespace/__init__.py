"""Commands about what is in a namespace: entities, keys and messages.

Read `settings.py` (settings as options) and `catalogue.py` (what can be asked of
entities; `folder.py` answers from a data folder, `running.py` asks a namespace), then
`queue.py`, `topic.py`, `subscription.py` and `rule.py`; `namespace.py` (empty an entity
or all of it) and `keys.py` (both in a folder or on a running server), then `message.py`
(over AMQP).
Must not know how a server is run, nor pairs of namespaces.
"""
