"""Admission: connections that are accepted, and tokens that are validated.

Read `port.py` (the connections of a namespace), `entrance.py` (admission in turn while
others work), `memory.py` (what connections hold, and which has to go), `jwt.py` (bearer
tokens), `buckets.py` (how often, by address), `failures.py` (the price of refused
tokens) and `switchboard.py` (rehearsed faults, on and off).
What a claim allows is decided in `core/rights.py`. Must not know what is done with it.
"""
