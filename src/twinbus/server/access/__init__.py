"""Admission: connections that are accepted, and tokens that are validated.

Read `port.py` (the connections of a namespace), `entrance.py` (admission in turn while
others work), `jwt.py` (bearer tokens) and `failures.py` (the price of refused tokens).
What a claim allows is decided in `core/rights.py`. Must not know what is done with it.
"""
