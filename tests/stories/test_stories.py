"""Every story plays as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.runner import Story, stories


@pytest.mark.parametrize("path", stories(), ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    story = Story()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        said, _, expected = line.partition("->")

        seen = story.play(said)

        if expected:
            assert seen == " ".join(expected.split()), f"{path.name}, line {number}"
        else:
            assert seen in ("ok", *map(str, range(100))) or "," in seen, line


def test_there_are_stories() -> None:
    assert len(stories()) >= 20
