"""Tests of `server/broker/`."""
