"""The guide to the console says what is true: its commands work as printed.

They run in a network of their own, where the ports of the page are free. The browser is
`curl`, which follows the link and keeps the page that it leads to.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.printed import blocks, printed
from tests.walking import OwnNetwork, Walk

PAGE = "docs/console.md"
SERVE = "twinbus serve --dev --namespace contoso --data ./data"
BROWSER = "curl --silent --location --cookie-jar jar --output page.html %s"
# Of two dead letters the page searches for one.
DEAD_LETTERS = """
export TWINBUS_CONNECTION_STRING=env:CONTOSO
twinbus queue create orders --connection-string env:CONTOSO
twinbus message send orders 'order C-4711'
twinbus message send orders 'order C-4712'
twinbus message receive orders --max 2 --settle dead-letter
"""


@pytest.mark.skipif(not OwnNetwork.is_allowed(), reason=OwnNetwork.NEEDS)
def test_the_commands_of_the_guide_work_as_printed(tmp_path: Path) -> None:
    console, curl = (text for _, text in blocks(PAGE, __file__))
    (token,) = (
        text for _, text in printed("docs/server.md") if "make_token.py\n" in text
    )
    (tmp_path / "make_token.py").write_text(token)
    with closing(OwnNetwork()) as network, Walk(tmp_path, network) as walk:
        walk.shell(SERVE)
        walk.shell(f"export BROWSER='{BROWSER}'")
        walk.shell(console)
        walk.shell(DEAD_LETTERS)
        walk.shell(curl)

    opened, answer = walk.printed[1], json.loads(walk.printed[-1])
    assert opened == ""
    assert "Overview of contoso" in (tmp_path / "page.html").read_text()
    assert [each["preview"] for each in answer["messages"]] == ["order C-4711"]
