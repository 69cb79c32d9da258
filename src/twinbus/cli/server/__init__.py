"""Commands about a server: to run one, to see why it failed, and to break it.

Read `serve.py`, `supervise.py` (the same command under its supervisor) and `logs.py`
(what both write to standard error), then `diagnostics.py` (after a failure), `fault.py`
(faults that a server makes itself) and `proxy.py` (faults between it and its clients).
Must not know entities or messages. `supervise.py` and `logs.py` import as little as
they can, and a command imports the server only when it runs.
"""
