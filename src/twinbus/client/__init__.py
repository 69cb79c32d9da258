"""The AMQP client on the project's engine: async, with a sync twin in `sync/`.

Read `sender.py` and `sending.py` (a send), `connection.py` and `live.py` (the
connection behind it), `link.py`, then `receiver.py` and `receiving.py`, `requests.py`,
`claims.py` and `management.py`; `metering.py` says what counts in a ledger.
`transport/` has the sockets. `tools/async_to_sync.py` writes `sync/`. Must not know the
server, or paired namespaces.
"""
