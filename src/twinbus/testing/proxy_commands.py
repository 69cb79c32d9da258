"""What a proxy is told while it runs: one line in, one answer out.

Owns the words. They come from standard input, over HTTP, or from another program as
`{"do": LINE}`. A line that makes no sense changes nothing, and the answer says in one
sentence what would. Knows nothing about where lines come from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from twinbus.testing.proxy import Fault, FaultyProxy

HELP = """\
cut                     reset all connections and refuse new ones
refuse                  refuse new connections; those that exist go on
drop                    reset all connections once; new ones are let in
silence | hold | reset | close [towards server|client|both] [PLACE]
                        at that place of each connection swallow what follows, keep
                        it back until heal, or end the connection (RST, FIN)
    PLACE: after BYTES | after FRAME | inside FRAME, such as: reset inside transfer
    FRAME: open, begin, attach, flow, transfer, disposition, detach, end, close,
           heartbeat, sasl init, sasl outcome, amqp header, ...; in clear text only
delay MS [JITTER_MS]    bytes arrive so much later, in each direction
trickle BYTES           so many bytes pass in a second, a few at a time
heal                    all passes again; connections that lost bytes are reset
status | help | exit"""

_FAULTS = ("silence", "hold", "reset", "close")
_SIDES = ("server", "client", "both")


class ProxyCommands:
    """A proxy that obeys."""

    def __init__(self, proxy: FaultyProxy) -> None:
        self._proxy = proxy
        self._fault = ""
        self._is_refusing = False
        self._verbs: dict[str, Callable[[Sequence[str]], None]] = {
            "cut": self._cut,
            "refuse": self._refuse,
            "drop": self._drop,
            "delay": self._delay,
            "trickle": self._trickle,
            "heal": self._heal,
            "status": _nothing,
            **dict.fromkeys(_FAULTS, self._inject),
        }

    def obey(self, line: str) -> dict[str, Any]:
        """Carry out a line, and answer with the state that follows."""
        try:
            words = _text(line).split()
            if words == ["help"]:
                return {"ok": True, "help": HELP}
            self._verbs.get(words[0] if words else "", _unknown)(words)
        except ValueError as error:
            return {"ok": False, "error": str(error)}
        return {"ok": True, **self.status()}

    def status(self) -> dict[str, Any]:
        """What is done to connections, and how many there are."""
        proxy = self._proxy
        return {
            "target": "{}:{}".format(*proxy.target),
            "refusing": self._is_refusing,
            "fault": self._fault or None,
            "delay_ms": round(proxy.speed.delay_seconds * 1000),
            "jitter_ms": round(proxy.speed.jitter_seconds * 1000),
            "bytes_per_second": proxy.speed.bytes_per_second or None,
            "connections": proxy.open_connections,
            "accepted": proxy.accepted,
            "strikes": proxy.strikes,
        }

    # -- the words -----------------------------------------------------------------

    def _cut(self, words: Sequence[str]) -> None:
        self._refuse(words)
        self._proxy.cut()

    def _refuse(self, words: Sequence[str]) -> None:
        _nothing(words)
        self._is_refusing = True
        self._proxy.refuse()

    def _drop(self, words: Sequence[str]) -> None:
        _nothing(words)
        self._proxy.cut()

    def _heal(self, words: Sequence[str]) -> None:
        _nothing(words)
        self._fault, self._is_refusing = "", False
        self._proxy.heal()

    def _inject(self, words: Sequence[str]) -> None:
        given: dict[str, Any] = {"then": words[0]}
        rest = list(words[1:])
        if rest[:1] == ["towards"]:
            given["towards"] = rest[1] if len(rest) > 1 else ""
            if given["towards"] not in _SIDES:
                raise ValueError("After towards comes server, client or both.")
            rest = rest[2:]
        if rest:
            given |= _place(rest)
        self._proxy.inject(Fault(**given))
        self._fault = " ".join(words)

    def _delay(self, words: Sequence[str]) -> None:
        numbers = [_number(word, words) for word in words[1:]]
        if len(numbers) not in (1, 2):
            raise ValueError("Write: delay MS [JITTER_MS].")
        delay_ms, jitter_ms = (*numbers, 0.0)[:2]
        rate = self._proxy.speed.bytes_per_second
        self._proxy.slow_down(delay_ms / 1000, rate, jitter_ms / 1000)

    def _trickle(self, words: Sequence[str]) -> None:
        if len(words) != 2:
            raise ValueError("Write: trickle BYTES_PER_SECOND, 0 for no limit.")
        speed, rate = self._proxy.speed, _number(words[1], words)
        self._proxy.slow_down(speed.delay_seconds, rate, speed.jitter_seconds)


def _text(line: str) -> str:
    """The command in a line, which may be that of a program."""
    if not line.lstrip().startswith("{"):
        return line
    try:
        do = json.loads(line).get("do")
    except ValueError:
        do = None
    if not isinstance(do, str):
        text = 'A program writes {"do": "COMMAND"}; help has all commands.'
        raise ValueError(text)  # noqa: TRY004 - all refusals are of one kind
    return do


def _unknown(words: Sequence[str]) -> None:
    raise ValueError(f"There is no command {' '.join(words)!r}; help has all.")


def _nothing(words: Sequence[str]) -> None:
    if len(words) > 1:
        raise ValueError(f"Nothing comes after {words[0]}.")


def _number(word: str, words: Sequence[str]) -> float:
    if not word.isdecimal():
        raise ValueError(f"{words[0]} takes whole numbers, not {word!r}.")
    return float(word)


def _place(words: Sequence[str]) -> dict[str, Any]:
    """Where a fault strikes: `after 100`, `after attach`, `inside transfer`."""
    what = " ".join(words[1:])
    if words[0] not in ("after", "inside") or not what:
        raise ValueError("Write: after BYTES, after FRAME or inside FRAME.")
    if words[0] == "after" and what.isdecimal():
        return {"after_bytes": int(what)}
    return {"after_frame": what, "inside": words[0] == "inside"}


__all__ = ["HELP", "ProxyCommands"]
