"""The pages of the console, one file each; `route.py` says which address is whose.

Read `signing.py` (how people sign in), `overview.py`, `entity.py` and `message.py`,
then `sending.py`, `bulk.py` and `files.py` (what is done with many messages),
`session.py`, `settings.py`, `connections.py`, `access.py`, `operations.py` (faults,
diagnostics, log of changes), then `pair.py` with `reports.py` (what clients report of
it) and `costs.py`.
A page reads a request and chooses what is shown. Pages decide nothing about rights:
they ask `visit.demand`, which asks `rights.allowed`.
"""
