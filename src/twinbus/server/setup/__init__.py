"""Start and stop: configuration, certificates, listeners, the server as a whole.

Read `server.py` (namespaces and listeners), `namespaces.py` (a namespace with its
shards and hosts), `load_watch.py` (how much there is to do), `listener.py`, `config.py`
(the configuration file, with `twinbus/config_node.py`), `certificates.py` and
`served_at.py` (connection strings, and the ports that the folder remembers). Then
`supervisor.py` (the process that starts the server and restarts it), `supervised.py`
(the server's side of it), `black_box.py` (what survives the server), `vitals.py` (what
it measures), `audit.py` (what it checks), `reporter.py` and `diagnostics.py` (the
bundle about a failure), `handover.py` (listening sockets from another process) and
`systemd.py`. Must not know what a message is.
"""
