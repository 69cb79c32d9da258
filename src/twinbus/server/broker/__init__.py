"""The broker: what a namespace does with commands, without any protocol.

Read `host.py` (collect, commit, hand out), `namespace.py` (the rules), `routing.py`
(where a message goes), `letter.py` (a message on its way), `entities.py`; then
`keys.py` (authorization rules), `provision.py` and `maintenance.py` (configured
entities, purge and reset). Must not know links, connections or HTTP.
"""
