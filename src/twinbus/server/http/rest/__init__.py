"""The REST data plane: send, receive and settle messages over HTTP.

Read `route.py` (a request and its answer), `paths.py`, `receiving.py` (waiting for a
message) and `messages.py` (a message as HTTP has it). Must not know administration.
"""
