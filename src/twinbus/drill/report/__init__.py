"""What a drill has shown, told after its end: figures, words, and one HTML page.

Read `summary.py` (the final figures), `lessons.py` (what was seen and what helped),
`timeline.py` (the history as series over time), `picture.py` (the series as SVG) and
`report.py` (the page, with `report.css`). What is shown while a drill runs is
`screen.py`, a folder above. Must not know processes or connections, and judges nothing.
"""
