"""The page of a report: one HTML file with pictures and tables, and nothing to fetch.

Read `pictures.py` (counts as SVG) and `page.py` (the page, with `page.html.j2` and
`page.css`). Must not know Spark or prices: what comes in is the report's JSON.
"""
