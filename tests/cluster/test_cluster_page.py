"""The guide to several machines says what is true: its commands work as printed.

They run in a network of their own, where the ports of the page are free. Only the
address of the database is changed.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from tests.postgres import shared_server
from tests.printed import blocks
from tests.walking import OwnNetwork, Walk

PAGE = "docs/cluster.md"
ON_PAGE = re.compile(r"postgresql://\S+")
SERVE = "twinbus serve --namespace contoso --data ./data"
# A client of the folder's server, and of a node; their certificates differ.
CLIENT = """
export CONTOSO=$(twinbus keys show --string --data ./data)
twinbus queue create orders --connection-string env:CONTOSO --ca-file data/tls/ca.pem
twinbus message send orders hello --connection-string env:CONTOSO \
    --ca-file data/tls/ca.pem
"""
RECEIVE = """
twinbus message receive orders --connection-string env:CONTOSO \
    --ca-file twinbus-data/tls/ca.pem
"""


@pytest.mark.skipif(not OwnNetwork.is_allowed(), reason=OwnNetwork.NEEDS)
def test_a_folder_becomes_a_namespace_of_nodes_as_it_is_printed(tmp_path: Path) -> None:
    export, serve, keys, sharded, copy = (text for _, text in blocks(PAGE, __file__))
    exports = [
        ON_PAGE.sub(f"'{shared_server().new_database()}'", export) for _ in range(2)
    ]
    assert ON_PAGE.search(export)
    with closing(OwnNetwork()) as network, Walk(tmp_path, network) as walk:
        walk.shell(SERVE)
        walk.shell(CLIENT)
        walk.stop()

        walk.shell(exports[0])
        walk.shell(copy)
        walk.shell(serve)
        walk.shell(keys)
        walk.shell(RECEIVE)
        durability = walk.ready["namespaces"]["contoso"]["durability"]
        walk.stop()

        walk.shell(exports[1])
        walk.shell(sharded)

    _, _, copied, shown, received, *_ = walk.printed
    assert re.search(r"messages +1\n", copied)
    assert "Endpoint=sb://bus.example.org" in shown
    assert "hello" in received
    assert durability == "local"
