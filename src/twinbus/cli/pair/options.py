"""The options that name a pair of namespaces: `twinbus syphon` and `twinbus backlog`.

Owns their help and how they become namespaces. Keys stay secrets all the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.secret import read_secret
from twinbus.cli.trust import CaFile, CaFiles, one_file
from twinbus.core.sas import parse_connection_string
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.spark.syphon_job.access import KeyedNamespace

__all__ = [
    "CaFile",
    "OptionalPrimaryText",
    "PrimaryName",
    "PrimaryText",
    "SecondaryText",
    "ca_pem",
    "name_of_primary",
    "namespace",
]

_HIDDEN = "@FILE and env:NAME keep it secret."

PrimaryText = Annotated[
    str,
    typer.Option(
        "--primary",
        envvar="TWINBUS_PRIMARY",
        show_envvar=True,
        help=f"The connection string of the primary; {_HIDDEN}",
    ),
]
OptionalPrimaryText = Annotated[
    str | None,
    typer.Option(
        "--primary",
        envvar="TWINBUS_PRIMARY",
        show_envvar=True,
        help=f"The connection string of the primary, for its name; {_HIDDEN}",
    ),
]
SecondaryText = Annotated[
    str,
    typer.Option(
        "--secondary",
        envvar="TWINBUS_SECONDARY",
        show_envvar=True,
        help=f"The connection string of the secondary; {_HIDDEN}",
    ),
]
PrimaryName = Annotated[
    str | None,
    typer.Option(
        help="What the backlog queues call the primary, if not the first label of its "
        "host name (with an address: address and port)."
    ),
]


def namespace(given: str, ca_file: CaFiles) -> KeyedNamespace:
    """The namespace that an option names."""
    from twinbus.spark.syphon_job.access import KeyedNamespace

    parsed = parse_connection_string(read_secret(given).reveal())
    return KeyedNamespace(parsed, ca_pem(ca_file))


def ca_pem(ca_file: CaFiles) -> str | None:
    """The text of the file, if there is one."""
    file = one_file(ca_file)
    if file is None:
        return None
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read. Check --ca-file.") from error


def name_of_primary(given: str | None, name: str | None, ca_file: CaFiles) -> str:
    """What stands for the primary in the paths of backlog queues."""
    from twinbus.pairing.rules.naming import primary_label

    if name is not None:
        return name
    if given is None:
        raise ConfigError("Say whose backlog: give --primary or --primary-name.")
    return primary_label(*namespace(given, ca_file).target)
