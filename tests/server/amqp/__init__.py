"""Tests of `server/amqp/`."""
