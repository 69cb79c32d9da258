"""AMQP 1.0 and the Service Bus conventions on it, without I/O or clock.

Read `types.py`, `codec.py` and `encoder.py` (values), `performatives.py` and
`performatives_codec.py` (frame bodies), `frames.py` (frames), then `connection.py`,
`session.py` and `link.py` (the states, each with its table on top) and `events.py`
(what they report). `message/` makes and reads the bytes of messages. Must not know
sockets, time, the store or the broker.
"""
