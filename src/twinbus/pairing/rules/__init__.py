"""The rules of a pair: no clock, no chance, no I/O. They come in as arguments.

Read `classification.py` (what an error says about a namespace), `retry.py` (transient
errors, pauses, halving), `policy.py` (the states of an entity, its table on top),
`send_call.py` with `holding.py` (one send), `rotation.py` (which backlog queue),
`ping.py`, `decisions.py` (what a shell is asked to do); then `naming.py`, `envelope.py`
with `envelope_fast.py`, and `packing.py` (a message in a backlog queue) and
`syphon_rules.py` (what the syphon does with it). Must not know connections.
"""
