"""Values of filters and actions: names, types, comparison and arithmetic.

Owns what two values mean together. Comparisons give True, False or None; None is the
"unknown" of three-valued logic. A missing property, a null, and operands whose types
do not belong together are all unknown: there is no conversion between text and
numbers. Only a wrong *value* is an error: division of an integer by zero, a result
outside 64 bits (of a duration: its ticks), a text that grows without end.

Numbers follow C#, as the real service says: integers are 64 bits, division drops the
fraction, the remainder has the sign of the dividend, and an integer that meets a
double becomes one.

Knows nothing about SQL text, nor about AMQP: a value is any Python object, and those
that are no bool, int, float, str, bytes, UUID, datetime or timedelta can only be
copied. Subclasses count as what they derive from.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from uuid import UUID

from twinbus import limits
from twinbus.errors import FilterError

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1
# A duration is sent as a 64-bit number of ticks of 100 nanoseconds.
DURATION_MAX = timedelta(microseconds=INTEGER_MAX // 10)


class Missing(enum.Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


# What a view answers for a property that the message does not have.
MISSING: Final = Missing.MISSING


class MessageView(Protocol):
    """What a filter may ask about one message; each answer is made when asked for.

    Names of user properties come folded (see `fold`), those of system properties in
    the spelling of `SYSTEM_PROPERTIES`. Points in time are datetimes, with UTC meant
    where no zone is given, and durations are timedeltas.
    """

    def system(self, name: str) -> object:
        """Give a system property, None if it is not set."""

    def property(self, name: str) -> object:
        """Give a user property, `MISSING` if there is none of that name."""


class Budget:
    """The steps spent on one message: by a rule, or by several together."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def spend(self, steps: int) -> None:
        """Take steps; refuses the message when there are too many."""
        self.steps += steps
        if self.steps > limits.FILTER_STEPS_MAX:
            raise FilterError(
                f"the rules need more than {limits.FILTER_STEPS_MAX} steps on this "
                "message"
            )


def fold(name: str) -> str:
    """Fold a name: property names are compared without regard to case."""
    return name.lower()


# -- system properties -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """A property that the broker defines: its one spelling, type and bounds."""

    name: str
    kind: type
    settable: bool = False
    required: bool = False
    chars_max: int | None = None


# The broker properties that Microsoft documents, without ForcePersistence (express
# entities do not exist here). Those marked read-only there are not settable.
SYSTEM_PROPERTIES: Final = (
    SystemProperty(
        "MessageId",
        str,
        settable=True,
        required=True,
        chars_max=limits.MESSAGE_ID_CHARS_MAX,
    ),
    SystemProperty("CorrelationId", str, settable=True),
    SystemProperty("Label", str, settable=True),
    SystemProperty("To", str, settable=True),
    SystemProperty("ReplyTo", str, settable=True),
    SystemProperty("ContentType", str, settable=True),
    SystemProperty(
        "SessionId", str, settable=True, chars_max=limits.SESSION_ID_CHARS_MAX
    ),
    SystemProperty(
        "ReplyToSessionId", str, settable=True, chars_max=limits.SESSION_ID_CHARS_MAX
    ),
    SystemProperty(
        "PartitionKey", str, settable=True, chars_max=limits.PARTITION_KEY_CHARS_MAX
    ),
    SystemProperty(
        "ViaPartitionKey", str, settable=True, chars_max=limits.PARTITION_KEY_CHARS_MAX
    ),
    SystemProperty("TimeToLive", timedelta, settable=True),
    SystemProperty("ScheduledEnqueueTimeUtc", datetime, settable=True),
    SystemProperty("EnqueuedTimeUtc", datetime),
    SystemProperty("ExpiresAtUtc", datetime),
    SystemProperty("LockedUntilUtc", datetime),
    SystemProperty("SequenceNumber", int),
    SystemProperty("EnqueuedSequenceNumber", int),
    SystemProperty("DeliveryCount", int),
    SystemProperty("Size", int),
    SystemProperty("State", int),
    SystemProperty("LockToken", UUID),
    SystemProperty("DeadLetterSource", str),
)

# The newer SDKs renamed some properties; both names work.
_ALIASES: Final = {
    "subject": "label",
    "enqueuedtime": "enqueuedtimeutc",
    "expiresat": "expiresatutc",
    "lockeduntil": "lockeduntilutc",
    "scheduledenqueuetime": "scheduledenqueuetimeutc",
    "transactionpartitionkey": "viapartitionkey",
}
_BY_NAME: Final = {fold(known.name): known for known in SYSTEM_PROPERTIES}


def system_property(name: str) -> SystemProperty:
    """Find a system property by any of its names; an unknown one is an error."""
    folded = fold(name)
    known = _BY_NAME.get(_ALIASES.get(folded, folded))
    if known is None:
        raise FilterError(f"there is no system property 'sys.{name}'")
    return known


def read_system(view: MessageView, known: SystemProperty) -> object:
    """Read a system property; what the service calls text is text here as well.

    AMQP lets an id be a number, a uuid or bytes, while filters compare it with text.
    """
    value = view.system(known.name)
    if known.kind is str and value is not None and not isinstance(value, str):
        return text_of(value)
    return value


def text_of(value: object) -> str | None:
    """Write an id as text; None for a value that is no id."""
    if isinstance(value, str):
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    return None


# -- types -------------------------------------------------------------------------

NUMBER: Final = "number"
# Types whose values have an order; the others are only equal or not.
_ORDERED: Final = frozenset({NUMBER, "text", "time", "duration"})

Comparison = Callable[[object, object], bool]

COMPARISONS: Final[dict[str, Comparison]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    ">": operator.gt,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
    "<": operator.lt,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
}


def type_name(value: object) -> str | None:
    """Name the type that decides which values belong together; None for opaque ones."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return NUMBER
    if isinstance(value, str):
        return "text"
    if isinstance(value, datetime):
        return "time"
    if isinstance(value, timedelta):
        return "duration"
    if isinstance(value, UUID):
        return "uuid"
    return "binary" if isinstance(value, bytes) else None


def check_constant(name: str, value: object) -> object:
    """Check a value that a rule brings along; times without a zone become UTC."""
    if type_name(value) is None:
        raise FilterError(f"'{name}' has a value of a type that filters cannot use")
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        raise FilterError(f"'{name}' is outside the range of a 64-bit integer")
    return in_utc(value) if isinstance(value, datetime) else value


def in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def compare(comparison: Comparison, left: object, right: object) -> bool | None:
    """Compare two values; None where they do not belong together."""
    if type(left) is str and type(right) is str:
        return comparison(left, right)
    kind = type_name(left)
    if kind is None or kind != type_name(right):
        return None
    if kind not in _ORDERED and comparison not in (operator.eq, operator.ne):
        return None
    if isinstance(left, datetime) and isinstance(right, datetime):
        return comparison(in_utc(left), in_utc(right))
    return comparison(left, right)


def equal(left: object, right: object) -> bool:
    """Tell whether two values are known to be equal."""
    return compare(operator.eq, left, right) is True


# -- arithmetic --------------------------------------------------------------------

Spend = Callable[[int], None]


def calculate(sign: str, left: object, right: object, spend: Spend) -> object:
    """Apply `+ - * / %`; None where the operands do not belong together."""
    kinds = (type_name(left), type_name(right))
    try:
        if kinds == (NUMBER, NUMBER):
            return _calculate_numbers(sign, left, right)
        if isinstance(left, str) and isinstance(right, str) and sign == "+":
            return _join(left, right, spend)
        if "time" in kinds or "duration" in kinds:
            return _calculate_times(sign, left, right)
    except OverflowError as error:
        raise FilterError(f"the result of '{sign}' is out of range") from error
    return None


def negative(value: object) -> object:
    """Apply a minus sign."""
    if isinstance(value, timedelta):
        return calculate("-", timedelta(), value, lambda _: None)
    return calculate("*", value, -1, lambda _: None)


def check_duration(value: timedelta) -> timedelta:
    """Refuse a duration that no message can hold."""
    if not -DURATION_MAX <= value <= DURATION_MAX:
        raise FilterError("a duration does not fit in 64 bits of 100 nanoseconds")
    return value


def _calculate_numbers(sign: str, left: object, right: object) -> int | float:
    if isinstance(left, int) and isinstance(right, int):
        return _calculate_integers(sign, int(left), int(right))
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    return _calculate_doubles(sign, float(left), float(right))


def _calculate_integers(sign: str, left: int, right: int) -> int:
    if sign in "/%":
        if right == 0:
            raise FilterError(f"an integer is divided by zero with '{sign}'")
        # Python rounds down; C# drops the fraction.
        quotient = abs(left) // abs(right)
        if (left < 0) != (right < 0):
            quotient = -quotient
        result = quotient if sign == "/" else left - right * quotient
    elif sign == "*":
        result = left * right
    else:
        result = left + right if sign == "+" else left - right
    if not INTEGER_MIN <= result <= INTEGER_MAX:
        raise FilterError(f"the result of '{sign}' does not fit in 64 bits")
    return result


def _calculate_doubles(sign: str, left: float, right: float) -> float:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if sign == "%":
        return math.fmod(left, right) if right and math.isfinite(left) else math.nan
    if right:
        return left / right
    # A double divided by zero is infinite, or no number for 0/0; it is no error.
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _calculate_times(sign: str, left: object, right: object) -> object:
    if isinstance(left, timedelta) and isinstance(right, datetime) and sign == "+":
        left, right = right, left
    if isinstance(left, datetime):
        left = in_utc(left)
        if isinstance(right, datetime) and sign == "-":
            return left - in_utc(right)
    if isinstance(left, datetime | timedelta) and isinstance(right, timedelta):
        if sign not in "+-":
            return None
        result = left + right if sign == "+" else left - right
        return check_duration(result) if isinstance(result, timedelta) else result
    return None


def _join(left: str, right: str, spend: Spend) -> str:
    """Join two texts.

    Bounded, because an action may double a property in each of its statements.
    """
    length = len(left) + len(right)
    if length > limits.PROPERTY_BYTES_MAX:
        raise FilterError(
            f"a text of {length} characters is longer than a property may be"
        )
    spend(length // limits.FILTER_CHARS_PER_STEP)
    return left + right
