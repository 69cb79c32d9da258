"""`format("servicebus")` as a sink: rows as messages.

Read `sink.py` (what Spark asks for), `encoding.py` (rows as bytes), `sending.py` and
`bad_rows.py`. Must not know the source or the syphon.
"""
