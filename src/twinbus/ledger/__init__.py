"""The ledger: how many billable operations there were, by minute, in Parquet files.

Read `schema.py` (the format). Must not know what a message, a link or a namespace is:
names and numbers come in.
"""
