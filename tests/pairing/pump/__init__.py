"""Tests of `pairing/pump/`."""
