"""The command `twinbus`: runs the part that is asked for, and ends with its code.

Exit codes, the same for every command:

    0   it worked
    1   it was tried and failed; the text says why
    2   it was not tried: an option, a file or a folder cannot be used

Errors go to standard error in one line. Results go to standard output, as JSON with
`--json`. Only the part that is asked for is imported, so that `serve` is ready fast.
"""

from __future__ import annotations

import gc
import sys

from twinbus.errors import (
    ArgumentError,
    ArgumentOutOfRange,
    ConfigError,
    InvalidField,
    TwinbusError,
)

FAILED = 1
NOT_TRIED = 2


def exit_code(error: TwinbusError) -> int:
    """Whether an error is about what was asked, or about what happened."""
    asked = (ConfigError, ArgumentError, ArgumentOutOfRange, InvalidField)
    return NOT_TRIED if isinstance(error, asked) else FAILED


def main() -> None:
    """Run the command line."""
    try:
        _run(sys.argv[1:])
    except TwinbusError as error:
        print(f"twinbus: {error.text}", file=sys.stderr)
        sys.exit(exit_code(error))


def _run(words: list[str]) -> None:
    if words[:1] == ["serve"]:
        # Imports make no garbage, and looking for it takes a tenth of a start. The
        # server turns it on again when it is ready; the supervisor makes none.
        gc.disable()
        if "--no-supervisor" not in words:
            from twinbus.cli.supervise import supervise

            sys.exit(supervise())
    from twinbus.cli.parts import PARTS, build

    asked = [part for part in PARTS if part in words[:1]]
    build(asked or PARTS)()


if __name__ == "__main__":
    main()
