"""Changes in memory that are undone together with the rows that they belong to.

Owns the order: the last change is undone first, back to a mark. A part of a turn that
fails goes back to its own mark, with its rows and effects; a turn that fails to the
start of the log. Knows nothing about what is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from twinbus.errors import StoreFault
from twinbus.server.broker.turn import PartEffects, Turn


class UndoLog:
    """How to undo what a turn has changed in memory."""

    __slots__ = ("_undo",)

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def note(self, undo: Callable[[], object]) -> None:
        """Something was changed, and this takes it back."""
        self._undo.append(undo)

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

    __slots__ = ("_effects", "_log", "_mark", "_savepoint", "_turn")

    def __init__(
        self, savepoint: AbstractContextManager[None], log: UndoLog, turn: Turn
    ) -> None:
        self._savepoint = savepoint
        self._log = log
        self._turn = turn

    def __enter__(self) -> None:
        self._mark = self._log.mark()
        self._effects: PartEffects = self._turn.begin_part()
        self._savepoint.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._savepoint.__exit__(kind, error, trace)
        if kind is None:
            self._turn.end_part(self._effects)
        elif issubclass(kind, Exception) and not issubclass(kind, StoreFault):
            self._log.rollback(self._mark)
            self._turn.undo_part(self._effects)
