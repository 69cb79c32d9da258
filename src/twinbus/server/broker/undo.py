"""Changes in memory that are undone together with the rows that they belong to.

Owns the order: the last change is undone first, back to a mark. A part of a turn that
fails goes back to its own mark, together with its rows; a turn that fails to the start
of the log. Knows nothing about what is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import TypeVar

from twinbus.errors import StoreFault
from twinbus.store.base import Store

T = TypeVar("T")


class UndoLog:
    """How to undo what a turn has changed in memory."""

    __slots__ = ("_undo",)

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def note(self, undo: Callable[[], object]) -> None:
        """Something was changed, and this takes it back."""
        self._undo.append(undo)

    def extend(self, items: list[T], more: Iterable[T]) -> None:
        """Add to a list, until that is undone."""
        length = len(items)
        items += more
        self.note(partial(items.__delitem__, slice(length, None)))

    def mark(self) -> int:
        """Where the log stands now."""
        return len(self._undo)

    def rollback(self, mark: int = 0) -> None:
        """Undo everything since a mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def clear(self) -> None:
        """The turn is on disk: nothing can be undone any more."""
        self._undo.clear()


class TurnPart:
    """A part of a turn that fails alone; a class, since every command is one."""

    __slots__ = ("_log", "_mark", "_rows", "_store")

    def __init__(self, store: Store, log: UndoLog) -> None:
        self._store = store
        self._log = log

    def __enter__(self) -> None:
        self._mark = self._log.mark()
        self._rows = self._store.begin_part()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._store.end_part()
        elif issubclass(kind, Exception) and not issubclass(kind, StoreFault):
            self._store.undo_part(self._rows)
            self._log.rollback(self._mark)
