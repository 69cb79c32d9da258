"""Any performative, state, terminus or error, for property tests.

Owns one strategy for each class of `performatives.py`. Field values are plain, as the
codec gives them out. Also makes composites field by field, right or wrong.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.wire.values import maps
from twinbus.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from twinbus.wire.performatives_codec import SPECS

boolean = st.booleans()
ubyte = st.integers(0, 255)
ushort = st.integers(0, 65535)
uint = st.integers(0, 2**32 - 1) | st.integers(0, 300)
ulong = st.integers(0, 2**64 - 1) | st.integers(0, 300)
string = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
symbol = st.text(st.characters(max_codepoint=127), max_size=20)
symbols = st.lists(symbol, max_size=3)
binary = st.binary(max_size=20)
tag = st.binary(max_size=32)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


errors = st.builds(Error, symbol, maybe(string), maybe(maps))
rejected = st.builds(Rejected, maybe(errors))
modified = st.builds(Modified, maybe(boolean), maybe(boolean), maybe(maps))
outcomes = (
    st.builds(Accepted)
    | rejected
    | st.builds(Released)
    | modified
    | st.builds(Declared, binary)
)
states = (
    outcomes
    | st.builds(Received, uint, ulong)
    | st.builds(TransactionalState, binary, maybe(outcomes))
)
sources = st.builds(
    Source,
    maybe(string),
    uint,
    symbol,
    uint,
    boolean,
    maybe(maps),
    maybe(symbol),
    maybe(maps),
    maybe(outcomes),
    maybe(symbols),
    maybe(symbols),
)
targets = st.builds(
    Target,
    maybe(string),
    uint,
    symbol,
    uint,
    boolean,
    maybe(maps),
    maybe(symbols),
)
coordinators = st.builds(Coordinator, maybe(symbols))
flows = st.builds(
    Flow,
    maybe(uint),
    uint,
    uint,
    uint,
    maybe(uint),
    maybe(uint),
    maybe(uint),
    maybe(uint),
    boolean,
    boolean,
    maybe(maps),
)
transfers = st.builds(
    Transfer,
    uint,
    maybe(uint),
    maybe(tag),
    maybe(uint),
    boolean,
    boolean,
    maybe(ubyte),
    maybe(states),
    boolean,
    boolean,
    boolean,
)
dispositions = st.builds(
    Disposition, boolean, uint, maybe(uint), boolean, maybe(states), boolean
)
opens = st.builds(
    Open,
    string,
    maybe(string),
    uint,
    ushort,
    maybe(uint),
    maybe(symbols),
    maybe(symbols),
    maybe(symbols),
    maybe(symbols),
    maybe(maps),
)
begins = st.builds(
    Begin,
    maybe(ushort),
    uint,
    uint,
    uint,
    uint,
    maybe(symbols),
    maybe(symbols),
    maybe(maps),
)
attaches = st.builds(
    Attach,
    string,
    uint,
    boolean,
    ubyte,
    ubyte,
    maybe(sources),
    maybe(targets | coordinators),
    maybe(st.dictionaries(tag, st.none(), max_size=2)),
    boolean,
    maybe(uint),
    maybe(ulong),
    maybe(symbols),
    maybe(symbols),
    maybe(maps),
)
performatives = (
    opens
    | begins
    | attaches
    | flows
    | transfers
    | dispositions
    | st.builds(Detach, uint, boolean, maybe(errors))
    | st.builds(End, maybe(errors))
    | st.builds(Close, maybe(errors))
)
sasl = (
    st.builds(SaslMechanisms, symbols)
    | st.builds(SaslInit, symbol, maybe(binary), maybe(string))
    | st.builds(SaslChallenge, binary)
    | st.builds(SaslResponse, binary)
    | st.builds(SaslOutcome, ubyte, maybe(binary))
)
transactions = st.builds(Declare, maybe(binary)) | st.builds(Discharge, binary, boolean)
composites = (
    performatives
    | sasl
    | errors
    | states
    | sources
    | targets
    | coordinators
    | transactions
)


def sample(code: int) -> Composite:
    """An instance with all defaults."""
    value: Composite = SPECS[code].cls()
    return value


def composite_of(code: int, parts: list[bytes]) -> bytes:
    """A composite with these encoded fields, in the long form of a list."""
    body = len(parts).to_bytes(4, "big") + b"".join(parts)
    return bytes((0, 0x53, code, 0xD0)) + len(body).to_bytes(4, "big") + body
