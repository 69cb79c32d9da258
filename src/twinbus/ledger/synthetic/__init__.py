"""A made-up ledger of any size, with outages of known truth.

Read `traffic.py` (the plan, and the usual rows of a day), `outages.py` (what an outage
adds) and `writing.py` (the files). It measures reports, and proves that they find what
is there and nothing else. Must not know reports.
"""
