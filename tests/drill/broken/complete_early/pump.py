"""The defect that both syphons get: the pump completes first, and sends then."""

from __future__ import annotations

from typing import Any

from tests.drill.broken.dying import die_once
from twinbus.client.sender import Sender
from twinbus.pairing.pump.destinations import Destination
from twinbus.pairing.pump.locks import Item
from twinbus.pairing.pump.pump import Pump
from twinbus.pairing.pump.settling import Settler


def complete_early() -> None:
    """Replace what the pump does with messages that it has received."""
    honest = Destination._attempt

    async def attempt(
        destination: Destination, sender: Sender, items: list[Item]
    ) -> Any:
        pump = destination._owner
        assert isinstance(pump, Pump)
        await pump._receiver.complete([item.message for item in items])
        die_once()
        return await honest(destination, sender, items)

    async def complete(settler: Settler, items: list[Item]) -> None:
        settler._gone(items)

    setattr(Destination, "_attempt", attempt)  # noqa: B010
    setattr(Settler, "_complete", complete)  # noqa: B010
