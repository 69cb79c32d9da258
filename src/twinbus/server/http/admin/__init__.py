"""The administration API of the official clients: ATOM entries over HTTP.

Read `route.py` (a request is admitted, run and answered), `request.py` (its path and
its parts), `operations.py` (what it does), `entries.py` (an entity with its state) and
`front.py` (what a stranger sees at `/`); then how these are written: `descriptions.py`,
`rules.py`, `filters.py` and `xml.py`.
Must not know messages.
"""
