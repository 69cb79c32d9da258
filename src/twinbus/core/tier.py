"""The tier of a namespace, which says how large its messages may be.

Owns the two tiers, their names and what the smaller one refuses. An entity says its own
size (`max_message_size_in_kilobytes`); the tier only says whether it may say so.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.errors import ArgumentOutOfRange

if TYPE_CHECKING:
    from twinbus.core.entity import Description


class NamespaceTier(Enum):
    """What Azure sells, as far as it changes what a namespace takes."""

    STANDARD = "standard"
    PREMIUM = "premium"

    @property
    def sku(self) -> str:
        """How administration clients are told."""
        return self.value.capitalize()

    def allows(self, description: Description) -> bool:
        """Whether the tier has messages as large as the entity takes."""
        kilobytes = getattr(description, "max_message_size_in_kilobytes", None)
        # Clients read the default and write it back, so it counts as not set.
        usual = kilobytes in (None, limits.MESSAGE_KILOBYTES_DEFAULT)
        return usual or self is not NamespaceTier.STANDARD

    def check(self, description: Description) -> None:
        """Refuse an entity that takes larger messages than the tier has."""
        if not self.allows(description):
            # Clients look for the name of the service's own field.
            raise ArgumentOutOfRange(
                "max_message_size_in_kilobytes: the value for "
                "'MaxMessageSizeInKilobytes' must be "
                f"{limits.MESSAGE_KILOBYTES_DEFAULT} in a namespace of the tier "
                "standard. Leave it out, or serve the namespace with --tier premium."
            )


# What a namespace has that was never given another.
DEFAULT_TIER = NamespaceTier.PREMIUM
