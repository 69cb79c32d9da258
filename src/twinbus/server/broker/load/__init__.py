"""What a shard measures of itself, and which requests are denied because of it.

Read `facets.py` (what is measured, and the level that it has reached), `admission.py`
(the questions of the surfaces), `throttle.py` (message rates) and `counters.py` (counts
that `/metrics` reads). Must not know links, connections or HTTP.
"""
