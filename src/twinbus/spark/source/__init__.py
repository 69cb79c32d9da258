"""`format("servicebus")` as a source: messages as rows, in batches and streams.

Read `source.py` (what Spark asks for), `settings.py` (its options), `browsing.py`
(reads without locks), `streams.py` (one reader for each `settle`), `intake.py`,
`rows.py`, `watching.py`, then `spool.py` (`settle=spool`). Must not know the syphon.
"""
