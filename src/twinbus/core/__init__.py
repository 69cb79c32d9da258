"""Rules without I/O that both sides share.

Read `names.py` (paths), `entity.py` and `rule.py` (descriptions), `tier.py` (what a
namespace allows), `filters.py` with `filter_*.py` (SQL and correlation filters),
`rights.py` and `sas.py` (claims and tokens), `durations.py`. Must not know bytes on
the wire, SQL or time.
"""
