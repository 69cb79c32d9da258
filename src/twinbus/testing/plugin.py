"""The pytest plugin: namespaces as fixtures.

Owns the fixtures and the marker; what a namespace can do is in `namespace.py`. Pytest
loads this file in every run, so it imports the server only when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from twinbus.testing.namespace import Entities, ServedNamespace

_MARKER = "servicebus"
_CLOCKS = ("real", "manual")
_PLACES = ("memory", "disk")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(clock='real', data='memory', queues=[...], topics=[...]): what the "
        "namespace of `servicebus_namespace` is like and has at the start.",
    )


@pytest.fixture(scope="session")
def servicebus_config() -> Entities | None:
    """What every namespace has at the start; override it in your conftest.py.

    A mapping with `queues` and `topics`, or the path of a configuration file.
    """
    return None


@pytest.fixture(scope="session")
def _servicebus_tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates for all namespaces of the run."""
    return tmp_path_factory.mktemp("servicebus")


@pytest.fixture(scope="session")
def servicebus_server(
    servicebus_config: Entities | None, _servicebus_tls: Path
) -> Iterator[ServedNamespace]:
    """One namespace for the whole run; `reset` it where tests must not meet."""
    from twinbus.testing.namespace import serve_namespace

    with serve_namespace(servicebus_config, tls=_servicebus_tls) as namespace:
        yield namespace


@pytest.fixture
def servicebus_namespace(
    request: pytest.FixtureRequest,
    servicebus_config: Entities | None,
    _servicebus_tls: Path,
) -> Iterator[ServedNamespace]:
    """A namespace of the test's own, new and empty; it is gone when the test is over.

    The marker `servicebus` says what it is like.
    """
    from twinbus.testing.namespace import SETTINGS, serve_namespace

    wanted = _wanted(request.node)
    _check_names(wanted, ("clock", "data", *SETTINGS))
    manual = _choice(wanted, "clock", _CLOCKS) == "manual"
    data = None
    if _choice(wanted, "data", _PLACES) == "disk":
        data = request.getfixturevalue("tmp_path") / "servicebus"
    entities = wanted or servicebus_config
    with serve_namespace(
        entities, manual_clock=manual, data=data, tls=_servicebus_tls
    ) as namespace:
        yield namespace


def _wanted(item: Any) -> dict[str, Any]:
    """The arguments of the markers of a test; the nearest one counts."""
    found: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers(_MARKER))):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.{_MARKER} takes names alone.")
        found |= marker.kwargs
    return found


def _check_names(wanted: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in wanted:
        if name not in known:
            raise pytest.UsageError(
                f"@pytest.mark.{_MARKER} does not know {name!r}. It takes "
                f"{', '.join(known)}."
            )


def _choice(wanted: dict[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = wanted.pop(name, known[0])
    if value not in known:
        choices = " or ".join(map(repr, known))
        raise pytest.UsageError(f"{name}={value!r} must be {choices}.")
    return str(value)
