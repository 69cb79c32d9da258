"""Sockets that the official clients leave open.

They forget a socket when a server ends its connection or when TLS fails. Owns the
fixture that collects them at the end of a file, so that no later test is blamed.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def no_socket_of_an_official_client_outlives_its_file() -> Iterator[None]:
    """Collect what is left over."""
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <s", ResourceWarning)
        gc.collect()


__all__ = ["no_socket_of_an_official_client_outlives_its_file"]
