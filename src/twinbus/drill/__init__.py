"""The drill: an outage rehearsed end to end, on two real servers, and judged.

Owns nothing that a real application would use. `plan.py` says what will happen,
`director.py` makes it happen with the processes of `children.py`, `judge.py` says
whether every promise was kept, and `report.py` shows it. All of the package may be
imported here; only the command line imports the drill.
"""
