"""How the client reaches a server and waits for it: sockets, deadlines, threads.

Read `endpoint.py` (where a namespace is), `stream.py` (TCP, proxy, TLS),
`websocket.py`, then `deadline.py`, `shared.py`, `daemon.py` and `loop_thread.py`
(waiting). Must not know AMQP.
"""
