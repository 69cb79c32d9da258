"""Tests of `pairing/sdk/`."""
