"""`--ca-file`: the authorities that a command trusts.

Owns the option, which may be given several times, as for two namespaces with an
authority each, and the one file that clients take. Their certificates are public,
so a file that is made for that is no secret; it goes when the command ends.
"""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from twinbus.errors import ConfigError

CaFiles = list[Path] | None
CaFile = Annotated[
    CaFiles,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="An authority to trust, as PEM: ca_file of the server's ready line; "
        "several.",
    ),
]


def one_file(given: CaFiles) -> Path | None:
    """A file with all authorities; None to trust those of the machine."""
    if not given:
        return None
    for file in given:
        if not file.exists():
            raise ConfigError(f"{file} does not exist. Check --ca-file.")
    if len(given) == 1:
        return given[0]
    with tempfile.NamedTemporaryFile(suffix=".pem", delete=False) as bundle:
        for file in given:
            bundle.write(_read(file) + b"\n")
    atexit.register(Path(bundle.name).unlink, missing_ok=True)
    return Path(bundle.name)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read. Check --ca-file.") from error
