"""The two namespaces of a drill: how they are reached, and how they are broken.

Read `access.py` (the ways in, which every process of a drill gets), `site.py` (servers
of the drill's own, and the faults) and `given_site.py` (namespaces that the user has),
then the means of the faults: `proxying.py` (a proxy before the primary) and
`switching.py` (faults that the primary makes itself).
Must not know traffic, judgement or report.
"""
