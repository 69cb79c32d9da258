"""Start and stop: configuration, certificates, listeners, the server as a whole.

Read `server.py` (namespaces, their hosts and listeners), `listener.py`, `config.py`
with `config_node.py` (the configuration file) and `certificates.py`. Must not know what
a message is.
"""
