"""Options: refused by name, and no secret in sight."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from twinbus.errors import ArgumentError
from twinbus.spark.options import ACCESS, Options
from twinbus.spark.source.settings import SourceSettings

SECRET = "planted-secret"
TEXT = f"Endpoint=sb://here/;SharedAccessKeyName=k;SharedAccessKey={SECRET}"
KNOWN = (*ACCESS, "entity", "chunkSize", "settle")


def test_names_are_known_in_any_case() -> None:
    options = Options({"chunksize": "7", "ENTITY": "orders"}, KNOWN)

    assert options.integer("chunkSize", 1, low=1, high=10) == 7
    assert options.text("entity") == "orders"


def test_options_that_spark_adds_are_ignored() -> None:
    assert not Options({"checkpointlocation": "/x", "path": "/y"}, KNOWN).has("entity")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"chunkSzie": "7"},
            "Option 'chunkSzie' is not known. Did you mean 'chunkSize'?",
        ),
        ({"zzz": "7"}, "Option 'zzz' is not known. Known are"),
    ],
)
def test_an_unknown_option_is_refused(given: dict[str, str], error: str) -> None:
    with pytest.raises(ArgumentError, match=error.replace("?", r"\?")):
        Options(given, KNOWN)


@pytest.mark.parametrize("value", ["0", "11", "x", "1.5", ""])
def test_a_wrong_number_is_refused_by_name(value: str) -> None:
    options = Options({"chunkSize": value}, KNOWN)

    with pytest.raises(ArgumentError, match="'chunkSize'"):
        options.integer("chunkSize", 1, low=1, high=10)


def test_a_wrong_word_is_refused_with_the_right_ones() -> None:
    options = Options({"settle": "later"}, KNOWN)

    with pytest.raises(ArgumentError, match="'settle' must be 'a', 'b' or 'c'"):
        options.choice("settle", ("a", "b", "c"), "a")


def test_a_folder_is_a_path() -> None:
    assert Options({"entity": "file:///a/b"}, KNOWN).folder("entity") == "/a/b"
    assert Options({"entity": "/a/b"}, KNOWN).folder("entity") == "/a/b"
    with pytest.raises(ArgumentError, match=r"'entity': .* not in an object store"):
        Options({"entity": "s3://a/b"}, KNOWN).folder("entity")


# -- connection strings ----------------------------------------------------------------


def test_a_connection_string_never_prints() -> None:
    access = Options({"connectionString": TEXT}, KNOWN).access()

    said = f"{access} {access!r} {access.parsed()!r} {[access]}"

    assert SECRET not in said
    again = pickle.loads(pickle.dumps(access))  # noqa: S301
    assert again.text().reveal() == TEXT


def test_a_variable_is_read_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    access = Options({"connectionStringEnv": "THE_BUS"}, KNOWN).access()
    with pytest.raises(
        ArgumentError, match="'connectionStringEnv': 'THE_BUS' is empty"
    ):
        access.text()

    monkeypatch.setenv("THE_BUS", TEXT)

    assert access.text().reveal() == TEXT
    assert SECRET.encode() not in pickle.dumps(access)


def test_a_file_is_read_where_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    access = Options({"connectionStringFile": str(file)}, KNOWN).access()
    with pytest.raises(
        ArgumentError, match=r"'connectionStringFile': .* cannot be read"
    ):
        access.text()

    file.write_text(f"{TEXT}\n")

    assert access.text().reveal() == TEXT


def test_one_of_the_three_is_needed_and_only_one() -> None:
    with pytest.raises(ArgumentError, match="'connectionStringEnv' is missing"):
        Options({}, KNOWN).access()
    both = {"connectionString": TEXT, "connectionStringEnv": "X"}
    with pytest.raises(ArgumentError, match="are both given") as caught:
        Options(both, KNOWN).access()
    assert SECRET not in str(caught.value)


def test_a_string_that_cannot_be_read_is_not_shown() -> None:
    access = Options({"connectionString": f"Endpoint=sb://x/;Kee={SECRET}"}, KNOWN)

    with pytest.raises(ArgumentError, match="'connectionString'") as caught:
        access.access().parsed()

    assert SECRET not in str(caught.value)


# -- sources ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"entity": "orders"}, "orders"),
        ({"entity": "/orders/"}, "orders"),
        ({"entity": "t", "subscription": "s"}, "t/Subscriptions/s"),
        ({"entity": "t/subscriptions/s"}, "t/Subscriptions/s"),
        ({"entity": "q", "subQueue": "deadletter"}, "q/$DeadLetterQueue"),
        ({"entity": "q/$deadletterqueue"}, "q/$DeadLetterQueue"),
        (
            {"entity": "t", "subscription": "s", "subQueue": "transferDeadLetter"},
            "t/Subscriptions/s/$Transfer/$DeadLetterQueue",
        ),
    ],
)
def test_options_name_a_path_together(given: dict[str, str], path: str) -> None:
    assert SourceSettings.of({"connectionString": TEXT, **given}).path == path


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({}, "entity"),
        ({"entity": "q/$management"}, "entity"),
        ({"entity": "t/subscriptions/a", "subscription": "b"}, "subscription"),
        ({"entity": "q", "subQueue": "dead"}, "subQueue"),
        ({"entity": "q", "settle": "maybe"}, "settle"),
        ({"entity": "q", "settle": "spool"}, "spoolLocation"),
        ({"entity": "q", "settle": "sink", "spoolLocation": "/x"}, "spoolLocation"),
        ({"entity": "q", "chunkSize": "5"}, "chunkSize"),
        ({"entity": "q", "settle": "sink", "sessions": "true"}, "sessions"),
        ({"entity": "q", "settle": "sink", "sessions": "yes"}, "sessions"),
        ({"entity": "q", "settle": "sink", "chunkSize": "99999"}, "chunkSize"),
        ({"entity": "q", "parallelism": "0"}, "parallelism"),
        ({"entity": "q", "maxMessagesPerBatch": "-1"}, "maxMessagesPerBatch"),
    ],
)
def test_a_source_refuses_by_name(given: dict[str, str], option: str) -> None:
    with pytest.raises(ArgumentError, match=f"'{option}'"):
        SourceSettings.of({"connectionString": TEXT, **given})
