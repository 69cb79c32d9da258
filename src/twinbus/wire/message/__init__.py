"""The bytes of messages: every section is made and read here.

Read `names.py` (what a service writes on messages), `writing.py` (how a section is
written) and `sections.py` (a message found and split without decoding its body); then
`fast_sections.py` (the usual encodings by hand), `rendering.py` (a kept message as a
receiver gets it) with `fast_delivery.py` (the same, read by hand), `batch.py` (many
messages in one transfer), `parts.py` (a message in pieces, so that single fields can be
moved or changed), `bodies.py` (a body as bytes and a kind) and `times.py` (times and
durations as values). Must not know links, sockets or the store.
"""
