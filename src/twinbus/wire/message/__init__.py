"""The bytes of messages: every section is made and read here.

Read `names.py` (what a service writes on messages), `writing.py` (how a section is
written) and `sections.py` (a message found, split and edited without decoding its
body); then `fast_sections.py` (the usual encodings by hand), `rendering.py` (a kept
message as a receiver gets it), `batch.py` (many messages in one transfer) and
`parts.py` (a message in pieces, so that single fields can be moved). Must not know
links, sockets or the store.
"""
