"""The broker: what a namespace does with commands, without any protocol.

Read `host.py` (collect, commit, hand out), `submissions.py` (the order of commands),
`turn.py` (a turn as a function), `nodes.py` (a turn among those of other nodes),
`commands.py` (what surfaces hand in), `namespace.py` (the rules) and `tick.py` (what
time does); then `sending/` (what may be sent, and where it goes), `directory/` (what
exists and where), `crossing/` (what goes from one shard to another, and a shard that is
sick), `load/` (what is measured, and which requests are denied because of it),
`clients.py` (what is told to clients), `timers.py` (when a host looks at the time),
`undo.py` (changes in memory that can be undone), `namespace_clock.py` (time over
restarts) and `faults.py` (what is rehearsed). `lock_tokens.py` and `rendering.py` say
how locks and kept messages look outside, `answers.py` how errors are told,
`accounting.py` how surfaces count in the ledger. Must not know links, connections or
HTTP.
"""
