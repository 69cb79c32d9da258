"""`twinbus fault`: what is refused before a server is asked."""

from __future__ import annotations

import pytest

from tests.cli.run import Run

# The discard port: no server is there, and none is needed.
_SERVER = (
    "Endpoint=sb://localhost:9;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
)


@pytest.mark.parametrize("option", ["--for", "--delay"])
@pytest.mark.parametrize("text", ["0", "-1", "86401", "PT0S", "P2D", "nan", "inf"])
def test_a_duration_out_of_range_is_refused_with_its_option(
    run: Run, option: str, text: str
) -> None:
    place = ("--connection-string", _SERVER)

    refused = run("fault", "add", "slow", *place, f"{option}={text}")

    assert refused.code == 2
    assert refused.err == (
        f"twinbus: {option} {text} must be above 0 and at most 86400 seconds (P1D).\n"
    )
