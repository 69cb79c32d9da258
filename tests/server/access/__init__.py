"""Tests of `server/access/`."""
