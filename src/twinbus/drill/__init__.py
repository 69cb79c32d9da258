"""The drill: an outage rehearsed end to end, on two real servers, and judged.

Owns nothing that a real application would use. `plan.py` says what will happen and what
each fault has to show, `director.py` makes it happen with the namespaces of `site/` and
a process for each of `roles/` (senders, receivers, a witness without a pair, a syphon),
which `children.py` starts and ends; `judge.py` says whether every promise was kept,
`lessons.py` what was seen and what helped, and `report.py` shows it. All of the package
may be imported here; only the command line imports the drill.
"""
