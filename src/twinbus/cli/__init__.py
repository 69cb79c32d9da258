"""The command line: one file per command, put together in `main.py`.

`supervise.py` runs `serve` under its supervisor, `output.py` shows results,
`offline.py` opens a data folder that no server has, `remote.py` asks a running server.
May import everything; nothing imports it.
"""
