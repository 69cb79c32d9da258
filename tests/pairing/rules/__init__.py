"""Tests of `pairing/rules/`."""
