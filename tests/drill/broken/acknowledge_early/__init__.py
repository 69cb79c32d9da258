"""A sender that acknowledges before the backlog has a message."""
