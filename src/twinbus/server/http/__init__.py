"""HTTP as a surface of the broker: decode, ask for the right, run, encode.

Read `server.py` (the list of routes, and the time that clients have), `head.py` and
`strangers.py` (what is refused before a surface sees it), `route.py` (the shape of a
surface) and `auth.py` (the credential); then the surfaces: `rest/` (messages), `admin/`
(entities), `upkeep.py` (keys, purge and reset), `faults.py` (rehearsed faults),
`health.py` and `metrics.py` (with `cached.py`), `console/` (pages for people),
`websocket.py`.
Must not know SQL or AMQP links.
"""
