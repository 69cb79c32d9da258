"""The administration API of the official clients: ATOM entries over HTTP.

Read `route.py` (a request and its answer), `paths.py`, `operations.py` (what it does),
`entries.py` and `replies.py` (answers); then how values are written: `descriptions.py`,
`rules.py`, `filters.py` and `xml.py`. Must not know messages.
"""
