"""The roles of a drill, each a process of its own that the director starts.

Read `stage.py` (a child's end of the pipes), then `sender.py`, `receiver.py`,
`witness.py` (an application without a pair), and the two syphons:
`syphon_application.py` and `syphon_spark.py`. `module_of` in `children.py` finds them
by name, and `--cast` names a package with modules to use instead.
Must not know the director, the judge or the report; of the site, `access.py` alone.
"""
