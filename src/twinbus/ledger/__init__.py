"""The ledger: how many billable operations there were, by minute, in Parquet files.

Read `schema.py` (the format), `counts.py` (counting while operations happen) with
`requests.py` (what requests to `$management` count),
`parquet.py` (rows as the bytes of a file),
`files.py` (how a file appears and goes), `writer.py` (minutes and events become files,
and what a crash leaves) with `compaction.py` (one file for a closed day), and
`keeper.py` (the timer and the thread that write). `synthetic/` makes ledgers up, with
outages of known truth. Must not know what a message, a link or a namespace is: names
and numbers come in. No secret and nothing of a message is ever given to it.
"""
