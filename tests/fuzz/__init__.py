"""Fuzzing of everything that reads bytes from a peer.

The oracle is the same everywhere: only a `PeerError` may escape, work and memory stay
within bounds, and the way a stream is cut does not change the verdict. `targets.py`
holds the table of what is fuzzed; `engine.py` knows how, and nothing about AMQP.
"""
