"""Connection strings: which ports stand in them, and which clients they serve."""

from __future__ import annotations

import pytest

from twinbus.core.sas import Secret
from twinbus.server.setup.served_at import ServedAt

KEY = "SharedAccessKeyName=root;SharedAccessKey=k"


def strings(served_at: ServedAt) -> tuple[str | None, ...]:
    return tuple(served_at.strings("root", Secret("k")).values())


def test_with_the_default_ports_one_string_serves_both_clients() -> None:
    served_at = ServedAt("bus.example", {"amqps": 5671, "https": 443})

    assert strings(served_at) == (f"Endpoint=sb://bus.example/;{KEY}",) * 2


@pytest.mark.parametrize("ports", [(5671, 8443), (5675, 443), (5671, None)])
def test_other_ports_stand_in_the_strings(ports: tuple[int, int | None]) -> None:
    amqps, https = ports
    given = {"amqps": amqps} | ({"https": https} if https else {})

    for_messages, for_administration = strings(ServedAt("a", given))

    assert for_messages == f"Endpoint=sb://a:{amqps}/;{KEY}"
    assert for_administration == (https and f"Endpoint=sb://a:{https}/;{KEY}")
