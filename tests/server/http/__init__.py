"""Tests of `server/http/`."""
