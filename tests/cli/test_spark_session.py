"""A session of Spark for a command: what is said when it cannot start."""

from __future__ import annotations

import pytest

from twinbus.cli.spark_session import spark_session
from twinbus.errors import ConfigError


def test_a_master_is_named_without_its_token() -> None:
    with pytest.raises(ConfigError) as refused:
        spark_session("test", "sc://127.0.0.1:9/;token=very-secret", {}, {})

    assert "--master sc://127.0.0.1:9/ does not answer" in refused.value.text
    assert "very-secret" not in refused.value.text
