"""Every block that a page prints is carried out by a test.

Owns the check of the table in `printed.py`, and of lines that are not carried out
because they install packages or take long: what they name exists.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.metadata import metadata

import pytest

from bench.__main__ import WORKLOADS
from tests.printed import (
    LINES,
    PAGES,
    ROOT,
    SHOWN,
    TESTS,
    TYPED,
    blocks,
    fits,
    place,
    printed,
)

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(" ".join(re.findall(r"^\.PHONY:(.*)", MAKEFILE, re.MULTILINE)).split())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# How the pages write that a path is the one of the project.
OWN = (".", "/path/to/twinbus")
# What `make wheel` builds.
WHEEL = "dist/*.whl"
# Where a line has a text beside it.
BESIDE = re.compile(r" {2,}.*")
MAKE_IN_A_SENTENCE = re.compile(r"`(make [^`]+)`")


def lines() -> Iterator[str]:
    """The commands that are compared with what they name."""
    for page, tests in TESTS.items():
        if LINES in tests.values():
            for _, text in blocks(page, __file__):
                yield from (BESIDE.sub("", line) for line in text.splitlines())
    for page in PAGES:
        for found in MAKE_IN_A_SENTENCE.findall((ROOT / page).read_text()):
            yield " ".join(found.split())


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_carried_out_by_a_test(page: str) -> None:
    fences = re.findall(r"^ *(?:```|~~~)", (ROOT / page).read_text(), re.MULTILINE)
    found = printed(page)

    assert fences == ["```"] * (2 * len(found)), (
        "Write each fence as ``` at the margin."
    )
    for language, text in found:
        assert language in (*TYPED, *SHOWN), f"{page}: say what {language!r} is."
        if language in TYPED:
            where = place(page, language, text)
            assert where is not None, f"{page}: no test carries out\n{text}"
            if where.endswith(".md"):
                assert (language, text) in printed(where), f"{where} has not\n{text}"


@pytest.mark.parametrize("page", TESTS)
def test_the_table_names_tests_that_ask_for_their_blocks(page: str) -> None:
    typed = [block for block in printed(page) if block[0] in TYPED]

    for key, name in TESTS[page].items():
        assert any(fits(key, *block) for block in typed), f"{key!r} fits no block."
        if name.endswith(".py") and name != LINES:
            text = (ROOT / "tests" / name).read_text()
            assert f'"{page}"' in text, f"{name} does not name {page}."
            assert "__file__" in text, f"{name} does not ask for its blocks."


@pytest.mark.parametrize("line", sorted(set(lines())))
def test_what_a_line_names_exists(line: str) -> None:
    program, *words = shlex.split(line)
    if program == "make":
        check_make(words)
    elif (program, words[:1]) == ("pip", ["install"]):
        for word in words[1:]:
            check_package(word)
    elif words[:2] == ["-m", "pytest"]:
        assert program == ".venv/bin/python"
        assert (ROOT / words[2]).is_dir()
    else:
        assert line in ("python3 -m venv env", ". env/bin/activate")


def check_make(words: list[str]) -> None:
    """The target exists, and reads the variables that are given."""
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    assert {word for word in words if "=" not in word} <= TARGETS
    for name in settings:
        assert f"$({name})" in MAKEFILE
    assert settings.get("ONLY", "server") in WORKLOADS


def check_package(word: str) -> None:
    """The package is this one or installed here, and has the extras that are named."""
    name, _, rest = word.partition("[")
    extras = set(rest.removesuffix("]").split(",")) - {""}
    if word == WHEEL:
        assert f"mv build/wheel/dist {WHEEL.partition('/')[0]}\n" in MAKEFILE
    elif name in OWN:
        assert extras <= set(PROJECT["optional-dependencies"])
    else:
        assert extras <= set(metadata(name).get_all("Provides-Extra") or ())
