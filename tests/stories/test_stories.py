"""Every story plays as it is written, in a namespace with one shard and with four."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import shared_server
from tests.store.test_postgres import Shared
from tests.stories.runner import FOLDER, Story, stories


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("path", stories(), ids=lambda path: path.stem)
def test_story(path: Path, shards: int) -> None:
    play(path, Story(shards))


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.campaign), 3])
def databases(request: pytest.FixtureRequest) -> list[Shared]:
    url = shared_server().new_database()
    return [Shared(url, shard) for shard in range(request.param)]


@pytest.mark.parametrize("path", stories(), ids=lambda path: path.stem)
def test_story_on_postgres(path: Path, databases: list[Shared]) -> None:
    for database in databases:
        database.node().close()
        database.empty()
    stores = [database.node() for database in databases]

    play(path, Story(stores=stores))

    for store in stores:
        store.close()


def play(path: Path, story: Story) -> None:
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


def test_with_four_shards_messages_cross() -> None:
    alone, spread = Story(), Story(4)
    for story in (alone, spread):
        play(FOLDER / "forwarding_hop_limit.txt", story)

    assert alone.carried == 0
    # Shard 0 learns of four queues elsewhere, and two messages make four hops each.
    assert spread.carried == 4 + 2 * 4
