"""The namespace server.

Read `broker/` first (the turn and the rules, without a protocol), then `amqp/`, `http/`
(the surfaces on it), `access/` (who comes in) and `setup/` (configuration, listeners,
start and stop). Imports go in this order: broker <- access <- amqp, http <- setup. Must
not know the client.
"""
