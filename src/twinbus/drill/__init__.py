"""The drill: an outage rehearsed end to end, on two real servers, and judged.

Owns nothing that a real application would use. `plan.py` says what will happen and what
each fault has to show, `director.py` makes it happen with the namespaces of `site/` and
a process for each of `roles/` (senders, receivers, a witness without a pair, a syphon),
which `children.py` starts and ends (`tied.py` ends them even if the drill is killed).
`scene.py` is how it stands and `screen.py` shows that; `look.py` finds what is left,
`judge.py` says whether every promise was kept, and `report/` tells what was seen and
what helped. The words that they share: `states.py`, `sightings.py`, `answers.py`.
All of the package may be imported here; only the command line imports the drill.
"""
