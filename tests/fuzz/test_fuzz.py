"""A short run of every fuzz target, and proof that the fuzzer can find something."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.engine import Report, Target, fuzz, make_input, run_case, shares
from tests.fuzz.targets import TARGETS
from twinbus.errors import DecodeError
from twinbus.wire.codec import decode

CASES = 20_000
SEED = 1


@pytest.mark.parametrize(("name", "cases"), list(shares(CASES, list(TARGETS))))
def test_nothing_but_a_peer_error_escapes(name: str, cases: range) -> None:
    report = fuzz(name, TARGETS[name], SEED, cases)

    assert not report.findings, "\n\n".join(map(str, report.findings))
    # A corpus that is always or never refused would reach one side only.
    assert report.accepted > len(cases) // 10
    assert report.refused > len(cases) // 10


def _unguarded(data: bytes, random: Random) -> None:
    """Forget a check: text is taken for granted, as a careless parser would."""
    try:
        decode(data)
    except DecodeError as refusal:
        if "utf-8" in refusal.text:
            raise UnicodeDecodeError("utf-8", data, 0, 1, refusal.text) from None
        raise


def _slow(data: bytes, random: Random) -> None:
    """Take longer than any short input is worth."""
    if 50 < len(data) < 100:
        sum(range(2_000_000))


@pytest.mark.parametrize("careless", [_unguarded, _slow])
def test_the_fuzzer_convicts_a_careless_parser(careless: object) -> None:
    target: Target = (TARGETS["codec"][0], careless)  # type: ignore[assignment]

    report = fuzz("careless", target, SEED, range(1000))

    assert report.findings


def test_a_case_can_be_run_again_alone() -> None:
    target = TARGETS["codec"][0], _unguarded
    found = fuzz("careless", target, SEED, range(3000)).findings[0]

    report = Report("careless")
    run_case(report, target, found.seed, found.case)

    assert report.findings[0].data == found.data
    assert f"--case {found.case}" in str(report.findings[0])


def test_the_same_case_makes_the_same_input() -> None:
    corpus = TARGETS["frames"][0]

    assert make_input(Random("a"), corpus) == make_input(Random("a"), corpus)


def test_cases_are_shared_out_without_a_rest() -> None:
    assert dict(shares(7, ["a", "b", "c"])) == {
        "a": range(3),
        "b": range(2),
        "c": range(2),
    }
