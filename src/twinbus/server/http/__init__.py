"""HTTP as a surface of the broker: decode, ask for the right, run, encode.

Read `server.py` (the routes and the bounds on a request), `auth.py` (the credential),
`route.py`; then `rest/` (messages), `admin/` (entities), `upkeep.py` (keys, purge and
reset), `health.py`, `metrics.py` and `websocket.py`. Must not know SQL or AMQP links.
"""
