"""Tools for tests, shipped for users too.

Read `namespace.py` and `plugin.py` (a namespace in a test), `server_process.py` (one to
kill), `proxy.py` with `proxy_stream.py` and `proxy_commands.py` (broken connections);
then the history checker: `events.py`, `history.py` with `copies.py` and `grants.py`,
`history_paired.py` with `history_evidence.py` and `history_causes.py`, and
`history_report.py`.
"""
