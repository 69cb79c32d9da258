"""Empty polls: credit of a receiver that ends without a delivery.

Owns what the ledger counts as one: credit that was drained, withdrawn, detached or
asked for again, and that no message has come for since the client gave it. A client
that asks again for what it has (the Python SDK, when its time is over) begins another
poll. One that gives more on top (the JavaScript SDK, for each message that it has
processed) goes on with the same one. Knows nothing about how messages are taken.
"""

from __future__ import annotations

from twinbus.ledger.schema import ACCEPTED, POLL
from twinbus.server.amqp.node import Node


class LinkPolls:
    """Watches the credit of one link; the fragments of an entity share one."""

    __slots__ = ("_limit", "_node", "_waits")

    def __init__(self, node: Node) -> None:
        self._node = node
        # Up to which delivery the client has given credit.
        self._limit = 0
        # Whether credit was given, and no message came since.
        self._waits = False

    def flowed(self) -> None:
        """The client has said what it can take."""
        link = self._node.link
        before, self._limit = self._limit, link.delivery_count + link.credit
        if link.drain or link.echo:
            # What is left is said once more, unless it is new.
            self._waits = self._waits or self._limit > before
        elif link.credit <= 0:
            self.ended()
        else:
            if self._limit <= before:
                self.ended()
            self._waits = True

    def delivered(self) -> None:
        """Messages went out."""
        self._waits = False

    def ended(self) -> None:
        """Nothing more comes for the credit that was given."""
        if self._waits:
            self._waits = False
            self.count()

    def count(self, outcome: str = ACCEPTED) -> None:
        """A client has asked and got nothing."""
        if self._node.account is not None:
            self._node.account.calls(POLL, outcome)
