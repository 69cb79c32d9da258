"""The LIKE operator: `%` any characters, `_` one character, and an escape.

Owns the matching of one pattern against one text. The rule it keeps: the time is
linear in the text whatever the pattern, because patterns come from strangers. There is
no regular expression and no backtracking. A pattern is cut at its `%` signs; the first
piece must begin the text, the last must end it, and each piece between is taken at the
leftmost place after the one before, which is always a safe choice.

Knows nothing about messages or three-valued logic.
"""

from __future__ import annotations

from collections.abc import Callable

from twinbus import limits
from twinbus.errors import FilterError

# What a piece holds where the pattern has an underscore.
ANY_CHARACTER = None

Spend = Callable[[int], None]


class Piece:
    """The part of a pattern between two `%`.

    Underscores at either end only keep a distance, so they are set aside. What is
    left is the core: a literal for nearly every pattern people write, which
    `str.find` looks for, or one with underscores inside.
    """

    __slots__ = ("_after", "_before", "_cells", "_literal", "length")

    def __init__(self, cells: list[str | None]) -> None:
        self.length = len(cells)
        plain = [n for n, cell in enumerate(cells) if cell is not ANY_CHARACTER]
        self._before = plain[0] if plain else len(cells)
        self._after = len(cells) - plain[-1] - 1 if plain else 0
        self._cells = cells[self._before : len(cells) - self._after]
        self._literal = None
        if ANY_CHARACTER not in self._cells:
            self._literal = "".join(cell for cell in self._cells if cell is not None)

    def is_at(self, text: str, start: int) -> bool:
        """Tell whether the piece is in `text` at `start`; the text is long enough."""
        start += self._before
        if self._literal is not None:
            return text.startswith(self._literal, start)
        part = text[start : start + len(self._cells)]
        return all(
            cell is ANY_CHARACTER or cell == character
            for cell, character in zip(self._cells, part, strict=True)
        )

    def find(self, text: str, start: int, end: int, spend: Spend) -> int:
        """Give the leftmost place between `start` and `end`, or -1."""
        start, end = start + self._before, end - self._after
        if self._literal is not None:
            found = text.find(self._literal, start, max(start, end))
            scanned = (found if found >= 0 else max(start, end)) - start
            spend(1 + (scanned + self.length) // limits.FILTER_CHARS_PER_STEP)
        else:
            found = self._search(text[start:end], spend)
            found += start if found >= 0 else 0
        return found - self._before if found >= 0 else -1

    def _search(self, text: str, spend: Spend) -> int:
        """Look for all alignments at once, each a bit of one integer.

        Bit n of a mask says that the character may stand at place n of the core; bit n
        of `state`, that places 0 to n match the text that ends here.
        """
        wild = sum(1 << n for n, cell in enumerate(self._cells) if cell is None)
        masks: dict[str | None, int] = {}
        for place, cell in enumerate(self._cells):
            masks[cell] = masks.get(cell, wild) | 1 << place
        goal = 1 << (len(self._cells) - 1)
        state = 0
        for position, character in enumerate(text):
            state = (state << 1 | 1) & masks.get(character, wild)
            if state & goal:
                spend(position + self.length)
                return position - len(self._cells) + 1
        spend(len(text) + self.length)
        return -1


class LikePattern:
    """A pattern, ready to match any number of texts."""

    __slots__ = ("_first", "_last", "_length", "_middle")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        pieces = [Piece(cells) for cells in _cut(pattern, escape)]
        self._first = pieces[0]
        # One piece means no `%`: it has to be the whole text.
        self._last = pieces[-1] if len(pieces) > 1 else None
        # `%%` makes empty pieces, which are everywhere.
        self._middle = [piece for piece in pieces[1:-1] if piece.length]
        self._length = sum(piece.length for piece in pieces)

    def matches(self, text: str, spend: Spend) -> bool:
        """Match the whole text; `spend` is told the steps this takes."""
        spend(1 + self._length)
        if self._last is None:
            return len(text) == self._length and self._first.is_at(text, 0)
        if len(text) < self._length or not self._first.is_at(text, 0):
            return False
        position, end = self._first.length, len(text) - self._last.length
        if not self._last.is_at(text, end):
            return False
        for piece in self._middle:
            found = piece.find(text, position, end, spend)
            if found < 0:
                return False
            position = found + piece.length
        return True


def _cut(pattern: str, escape: str | None) -> list[list[str | None]]:
    """Split a pattern at its `%` signs into cells; an escaped character is plain.

    The bound matters for patterns that are themselves properties of a message.
    """
    if len(pattern) > limits.FILTER_CHARS_MAX:
        raise FilterError(
            f"a LIKE pattern has {len(pattern)} characters, "
            f"at most {limits.FILTER_CHARS_MAX} are allowed"
        )
    if escape is not None and len(escape) != 1:
        raise FilterError(f"the ESCAPE of LIKE must be one character, not {escape!r}")
    pieces: list[list[str | None]] = [[]]
    plain = False
    for character in pattern:
        if plain:
            pieces[-1].append(character)
            plain = False
        elif character == escape:
            plain = True
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(ANY_CHARACTER if character == "_" else character)
    if plain:
        raise FilterError("a LIKE pattern ends with its escape character")
    return pieces
