"""Start and stop: configuration, certificates, listeners, the server as a whole.

Read `server.py` (namespaces, their hosts and listeners), `listener.py`, `config.py`
with `config_node.py` (the configuration file), `certificates.py` and `handover.py`
(sockets from another process). Must not know what a message is.
"""
