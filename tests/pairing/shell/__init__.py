"""Tests of `pairing/shell/`."""
