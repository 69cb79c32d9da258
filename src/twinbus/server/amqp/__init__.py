"""AMQP 1.0 as a surface of the broker: decode, ask for the right, run, encode.

Read `connection.py` (one client), `attaching.py` (which node stands at an address),
`node.py` (what all nodes share), then the nodes: `sending.py`, `receiving.py` with
`settling.py`, `polls.py` and `sessions.py`, `transactions.py`, `claims.py` (`$cbs`),
`requests.py` with `management/` (`$management`). `replies.py` has errors as peers are
told them. Must not know SQL or HTTP.
"""
