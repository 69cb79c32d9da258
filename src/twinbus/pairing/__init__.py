"""Paired namespaces: the rules, without clock, chance or I/O.

Read `policy.py` first (when an entity fails over), then `send_call.py` (what one send
does), `envelope.py` (what a diverted message looks like) and `syphon_rules.py` (how it
comes home). The shells that carry out what these decide are on top.
"""
