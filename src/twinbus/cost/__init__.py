"""What operations cost: a price book, and a forecast of what a pair will need.

Read `usage.py` (what was or will be used), `money.py` (tiers and rounding), `prices.py`
(the price book, read from YAML, and its bills; `prices.yaml` is the default), then
`quantities.py` (times, rates and sizes as people write them) and `forecast.py` (how
much a pair will use, phase by phase) and `spent.py` (what a report has found, priced).
No price is in the code.
Does no I/O but for reading a price book; must not know Spark, terminals or the server.
"""
