"""Sending: what may be sent, and where it goes.

Read `checking.py` (what a message may say), `naming.py` (ids and keys),
`routing.py` (where a message goes), `letter.py` (a message on its way) and `fan_out.py`
(how far copies for many subscriptions have come). Must not know links, connections or
HTTP.
"""
