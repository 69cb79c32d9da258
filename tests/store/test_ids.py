"""The names by which ids are read outside the store."""

from __future__ import annotations

import pytest

from twinbus.store.base import (
    DEAD_LETTER,
    SEQUENCE_MASK,
    TRANSFER_DEAD_LETTER,
    EndedLock,
    Lock,
    State,
    Stored,
    container_of,
    entity_of,
    id_of,
    is_sub_queue,
    sequence_of,
)

ENTITY = 12


@pytest.mark.parametrize("sequence", [1, 7, SEQUENCE_MASK])
@pytest.mark.parametrize("which", [0, DEAD_LETTER, TRANSFER_DEAD_LETTER])
def test_an_id_has_a_container_and_a_sequence(which: int, sequence: int) -> None:
    container = ENTITY + which
    key = id_of(container, sequence)

    assert (container_of(key), sequence_of(key)) == (container, sequence)
    assert (Lock(key, 1).container, Lock(key, 1).sequence) == (container, sequence)
    assert EndedLock(key, 1, None).container == container
    assert entity_of(container) == ENTITY
    assert is_sub_queue(container) == (which != 0)


@pytest.mark.parametrize("state", State)
def test_a_message_is_in_one_state(state: State) -> None:
    rest = (0, None, None, None, None, None, b"", b"")
    stored = Stored(id_of(ENTITY, 7), 0, int(state), *rest)

    assert (stored.container, stored.sequence) == (ENTITY, 7)
    found = [stored.is_active, stored.is_deferred, stored.is_scheduled]
    assert [State(place) for place, held in enumerate(found) if held] == [state]
