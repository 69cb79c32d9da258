"""Making inputs, running a target on them, and judging what happens.

Owns mutation, the oracle and the report. Every case has a random generator of its own,
made from the seed, the target and the number of the case, so that one case can be run
again alone. Knows nothing about AMQP: a target brings its own corpus.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from twinbus.errors import PeerError

# A corpus gives a well-formed input, or nearly; a run raises on anything unexpected.
Corpus = Callable[[Random], bytes]
Run = Callable[[bytes, Random], None]
Target = tuple[Corpus, Run]

# What a case may take. A parser gets 1 ms for a KiB; a run reads its input several
# times over and compares what comes out. A case over this gets two more tries, because
# one run may have been unlucky.
NANOSECONDS_PER_KIB_MAX = 10_000_000
NANOSECONDS_FREE = 5_000_000

INPUT_BYTES_MAX = 16 * 1024
# Numbers at which sizes and counts tend to break.
EDGES = (0, 1, 2, 3, 7, 8, 31, 32, 33, 127, 128, 252, 253, 254, 255)
WIDE_EDGES = (0, 1, 255, 256, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFB, 0xFFFF_FFFF)


@dataclass(slots=True)
class Finding:
    """One case that broke the rules."""

    target: str
    seed: int
    case: int
    data: bytes
    text: str

    def __str__(self) -> str:
        again = f"--target {self.target} --seed {self.seed} --case {self.case}"
        return f"{again}\n{self.data.hex()}\n{self.text}"


@dataclass(slots=True)
class Report:
    """What a target did with its cases."""

    target: str
    accepted: int = 0
    refused: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.accepted + self.refused + len(self.findings)

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.cases} cases, {self.accepted} accepted, "
            f"{self.refused} refused, {len(self.findings)} findings"
        )


def fuzz(name: str, target: Target, seed: int, cases: range) -> Report:
    """Run a range of cases; stop early only when findings pile up."""
    report = Report(name)
    for case in cases:
        run_case(report, target, seed, case)
        if len(report.findings) >= 10:
            break
    return report


def run_case(report: Report, target: Target, seed: int, case: int) -> None:
    """Run one case and add its verdict to the report."""
    corpus, run = target
    random = Random(f"{seed}/{report.target}/{case}")
    data = make_input(random, corpus)
    state = random.getstate()
    limit = NANOSECONDS_FREE + NANOSECONDS_PER_KIB_MAX * len(data) // 1024
    refused = False
    for _ in range(3):
        random.setstate(state)
        start = time.process_time_ns()
        try:
            run(data, random)
        except PeerError:
            refused = True
        except Exception:  # noqa: BLE001
            text = traceback.format_exc()
            report.findings.append(Finding(report.target, seed, case, data, text))
            return
        if time.process_time_ns() - start <= limit:
            break
    else:
        text = f"slower than {limit} ns three times"
        report.findings.append(Finding(report.target, seed, case, data, text))
        return
    if refused:
        report.refused += 1
    else:
        report.accepted += 1


# -- inputs --------------------------------------------------------------------------


def make_input(random: Random, corpus: Corpus) -> bytes:
    """Make an input: noise at times, else a sample with up to eight mutations."""
    if random.random() < 0.02:
        return random.randbytes(random.randrange(200))
    data = bytearray(corpus(random))
    # One in four stays as it is, so that the far side of every parser is reached.
    for _ in range(random.choice((0, 1, 1, 2, 2, 3, 5, 8))):
        random.choice(MUTATIONS)(data, random, corpus)
    return bytes(data[:INPUT_BYTES_MAX])


def _spot(data: bytearray, random: Random) -> int:
    return random.randrange(len(data)) if data else 0


def _flip_a_bit(data: bytearray, random: Random, corpus: Corpus) -> None:
    if data:
        data[_spot(data, random)] ^= 1 << random.randrange(8)


def _set_a_byte(data: bytearray, random: Random, corpus: Corpus) -> None:
    if data:
        data[_spot(data, random)] = random.randrange(256)


def _set_an_edge(data: bytearray, random: Random, corpus: Corpus) -> None:
    if data:
        data[_spot(data, random)] = random.choice(EDGES)


def _step_a_byte(data: bytearray, random: Random, corpus: Corpus) -> None:
    if data:
        spot = _spot(data, random)
        data[spot] = (data[spot] + random.choice((-1, 1))) & 0xFF


def _set_a_wide_edge(data: bytearray, random: Random, corpus: Corpus) -> None:
    spot = _spot(data, random)
    data[spot : spot + 4] = random.choice(WIDE_EDGES).to_bytes(4, "big")


def _insert(data: bytearray, random: Random, corpus: Corpus) -> None:
    spot = _spot(data, random)
    data[spot:spot] = random.randbytes(random.randint(1, 8))


def _delete(data: bytearray, random: Random, corpus: Corpus) -> None:
    spot = _spot(data, random)
    del data[spot : spot + random.randint(1, 8)]


def _repeat(data: bytearray, random: Random, corpus: Corpus) -> None:
    spot = _spot(data, random)
    part = data[spot : spot + random.randint(1, 32)]
    data[spot:spot] = part * random.choice((1, 2, 10, 100))


def _truncate(data: bytearray, random: Random, corpus: Corpus) -> None:
    del data[_spot(data, random) :]


def _append(data: bytearray, random: Random, corpus: Corpus) -> None:
    data += corpus(random)


def _splice(data: bytearray, random: Random, corpus: Corpus) -> None:
    other = bytearray(corpus(random))
    data[_spot(data, random) :] = other[_spot(other, random) :]


def _overwrite(data: bytearray, random: Random, corpus: Corpus) -> None:
    other = corpus(random)
    spot = _spot(data, random)
    data[spot : spot + len(other)] = other


MUTATIONS: tuple[Callable[[bytearray, Random, Corpus], None], ...] = (
    _flip_a_bit,
    _set_a_byte,
    _set_an_edge,
    _step_a_byte,
    _set_a_wide_edge,
    _insert,
    _delete,
    _repeat,
    _truncate,
    _append,
    _splice,
    _overwrite,
)


def shares(cases: int, names: list[str]) -> Iterator[tuple[str, range]]:
    """Divide a number of cases among the targets, the rest going to the first."""
    each, rest = divmod(cases, len(names))
    for index, name in enumerate(names):
        yield name, range(each + (index < rest))
