"""The blocking surface of pairing: the async one, run in a thread."""
