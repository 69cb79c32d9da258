"""The command line: one file per command, put together in `main.py`.

Commands about a server are in `server/`, those about what is in a namespace in
`namespace/` and those about a pair in `pair/`; `drill.py` stands alone, and so do
`cost.py` and `cost_view.py`, what a pair costs, and `status.py`, a running namespace on
one screen. Beside them:
`top.py` (options before any command), `output.py` (how results are shown),
`confirm.py` (asks before something is destroyed), `secret.py` and `trust.py` (keys and
authorities in options),
`offline.py` (a data folder that no server has), `remote.py` (a running server, asked
over HTTP), `sdk.py` and `administration.py` (a namespace, through the official clients)
and `watch.py` (look again and again).
May import everything; only the drill imports it, for `remote.py` and `sdk.py`.
"""
