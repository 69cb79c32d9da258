"""The bytes of messages: every section is made and read here.

Read `sections.py` first (a message found, split and edited without decoding its body),
then `names.py` (the names that a service writes on messages), `fast_sections.py`
(the usual encodings by hand), `rendering.py` (a kept message as
a receiver gets it), `batch.py` (many messages in one transfer) and `parts.py` (a
message in pieces, so that single fields can be moved). Must not know links, sockets or
the store.
"""
