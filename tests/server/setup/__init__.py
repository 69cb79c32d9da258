"""Tests of `server/setup/`."""
