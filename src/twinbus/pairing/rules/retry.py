"""Retries: which errors are transient, how long to pause, how to split a refused batch.

Owns these rules for all callers: sends, pumps and the jobs on Spark; and which error is
only the end of a long poll. A caller keeps its own count of failures in a row and its
own deadline, and does the waiting; jitter comes in as an argument. What an error says
about a namespace is `classification.py`. Knows nothing about clocks, connections or
messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from twinbus import limits
from twinbus.errors import RemoteError
from twinbus.pairing.rules.classification import Failure, Verdict, kind_of

_T = TypeVar("_T")

_OF_ONE_MESSAGE = frozenset((Failure.REFUSED, Failure.TOO_LARGE, Failure.MESSAGE))


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later, without any change by a person."""
    return kind_of(error).verdict is not Verdict.RAISE


_IDLE_CONDITIONS = frozenset(("amqp:link:detach-forced", "amqp:connection:forced"))
# As Azure says it, for links and for connections, in the words of today and of before.
_IDLE_TEXT = re.compile(r"idle ?time|was inactive|any active links", re.IGNORECASE)


def is_ended_poll(error: RemoteError, waited_ms: int) -> bool:
    """Whether a service has ended a link because nothing came on it for long.

    Then a receive that waited so long is over and nothing is wrong. A service that does
    so after a short wait would be asked without a pause: that is a failure.
    """
    if error.condition not in _IDLE_CONDITIONS or waited_ms < limits.IDLE_LINK_MS_MIN:
        return False
    return _IDLE_TEXT.search(error.text) is not None


# -- pauses ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Backoff:
    """A pause that doubles with each failure in a row, up to a longest one."""

    first_ms: int
    longest_ms: int

    def pause_ms(
        self, failures: int, *, jitter: float = 0.0, busy: bool = False
    ) -> int:
        """How long to wait after so many failures in a row; 0 before the first.

        `jitter` from 0 to 1 takes away up to a half, so that many callers do not come
        back all at once. `busy`: the service has said so, and asks for ten seconds.
        """
        if busy:
            return limits.SERVER_BUSY_PAUSE_MS
        if failures < 1:
            return 0
        doublings = min(failures - 1, limits.RETRY_DOUBLINGS_MAX)
        pause_ms = min(self.first_ms << doublings, self.longest_ms)
        return round(pause_ms * (1 - jitter / 2))


# A send to an entity that is suspect, and a request that settles messages.
SEND_BACKOFF = Backoff(limits.RETRY_PAUSE_MS_MIN, limits.RETRY_PAUSE_MS_MAX)
# A pump that cannot read its backlog queue.
RECEIVE_BACKOFF = Backoff(limits.RETRY_PAUSE_MS_MIN, limits.DESTINATION_PAUSE_MS_MAX)
# A backlog queue that does not take messages.
QUEUE_BACKOFF = Backoff(limits.QUEUE_PAUSE_MS_MIN, limits.QUEUE_PAUSE_MS_MAX)
# An entity of the primary that does not take what the syphon sends.
DESTINATION_BACKOFF = Backoff(
    limits.DESTINATION_PAUSE_MS_MIN, limits.DESTINATION_PAUSE_MS_MAX
)
# A destination of the outbox. Whether it takes messages is mostly known without asking,
# so the pause can be short.
OUTBOX_BACKOFF = Backoff(limits.OUTBOX_PAUSE_MS_MIN, limits.OUTBOX_PAUSE_MS_MAX)
# The Spark source and sink, and the syphon's job.
SPARK_BACKOFF = Backoff(limits.AWAY_PAUSE_MS_MIN, limits.AWAY_PAUSE_MS_MAX)
SYPHON_BACKOFF = Backoff(limits.SYPHON_PAUSE_MS_MIN, limits.SYPHON_PAUSE_MS_MAX)


# -- batches -----------------------------------------------------------------------


def is_of_one_message(error: BaseException) -> bool:
    """Whether a batch may have been refused because of one message in it."""
    return kind_of(error) in _OF_ONE_MESSAGE


def halves(items: Sequence[_T]) -> tuple[list[_T], list[_T]]:
    """Both halves of a batch that was refused whole, in their order.

    Halved again and again, a message that is refused is alone after log2(n) requests,
    and its neighbours are accepted.
    """
    assert len(items) > 1, "a single message is not halved"
    middle = len(items) // 2
    return list(items[:middle]), list(items[middle:])
