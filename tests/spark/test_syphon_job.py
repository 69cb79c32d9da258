"""What is wrong is one clear error, before Spark starts to work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.site import message
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.errors import ArgumentError, TwinbusError
from twinbus.pairing.errors import NoBacklogQueue, SameNamespace
from twinbus.pairing.rules.envelope import divert
from twinbus.pairing.rules.naming import backlog_path
from twinbus.spark.syphon_job.job import SyphonCannotStart, check, prepare
from twinbus.testing.namespace import ServedNamespace, serve_namespace

RULES = [
    {"name": "listens", "rights": ["Listen"], "primary_key": "listens-key"},
    {"name": "sends", "rights": ["Send"], "primary_key": "sends-key"},
]
LOCAL = "local[2,4]"
# Nothing listens there.
NOWHERE = (
    "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=x;SharedAccessKey=y;"
    "UseDevelopmentEmulator=true"
)


@pytest.fixture(scope="module")
def primary() -> Iterator[ServedNamespace]:
    with serve_namespace({"queues": ["orders"], "authorization_rules": RULES}) as made:
        yield made


@pytest.fixture(scope="module")
def secondary() -> Iterator[ServedNamespace]:
    entities = {"queues": [backlog_path("home", 0)], "authorization_rules": RULES}
    with serve_namespace(entities) as made:
        yield made


@pytest.fixture
def options(
    primary: ServedNamespace, secondary: ServedNamespace, tmp_path: Path
) -> dict[str, object]:
    """Options that work."""
    return {
        "primaryConnectionString": primary.connection_string,
        "secondaryConnectionString": secondary.connection_string,
        "primaryName": "home",
        "journalLocation": str(tmp_path),
    }


def as_rule(namespace: ServedNamespace, rule: str) -> str:
    text = namespace.connection_string
    text = text.replace(f"KeyName={DEV_KEY_NAME}", f"KeyName={rule}")
    return text.replace(DEV_KEY_TEXT, f"{rule}-key")


def refusal(options: dict[str, object], master: str = LOCAL) -> TwinbusError:
    def attempt() -> None:
        job, _ = prepare(options, master)
        asyncio.run(check(job))

    with pytest.raises(TwinbusError) as caught:
        attempt()
    assert "\n" not in caught.value.text
    return caught.value


def test_good_options_are_let_through(options: dict[str, object]) -> None:
    job, _ = prepare(options, LOCAL)

    assert asyncio.run(check(job)) == [0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"primaryConnectionString": None}, "'primaryConnectionStringEnv' is missing"),
        ({"secondaryConnectionString": None}, "'secondaryConnectionStringEnv'"),
        ({"secondaryConnectionString": "what"}, "Option 'secondaryConnectionString'"),
        ({"primaryConnectionStringEnv": "X"}, "are both given"),
        ({"chunkSize": 0}, "'chunkSize' must be a whole number from 2 to 2000"),
        ({"chunkSize": "many"}, "'chunkSize' must be a whole number"),
        ({"taskBudgetSeconds": 0}, "'taskBudgetSeconds'"),
        ({"maxMessagesPerBatch": -1}, "'maxMessagesPerBatch'"),
        ({"keepOrder": "perhaps"}, "'keepOrder' must be"),
        ({"ttl": "sometimes"}, "'ttl' must be 'remaining' or 'restart'"),
        ({"caFile": "/nowhere"}, "Option 'caFile': '/nowhere' cannot be read"),
        ({"chunksise": 5}, "Did you mean 'chunkSize'?"),
    ],
)
def test_a_wrong_option_is_named(
    options: dict[str, object], change: dict[str, object], says: str
) -> None:
    error = refusal({**options, **change})

    assert isinstance(error, ArgumentError)
    assert says in error.text


def test_executors_elsewhere_need_a_journal_that_they_share(
    options: dict[str, object],
) -> None:
    error = refusal({**options, "journalLocation": None}, "spark://somewhere:7077")

    assert "Option 'journalLocation' is missing" in error.text


def test_the_two_must_be_two(options: dict[str, object]) -> None:
    same = options["primaryConnectionString"]

    assert isinstance(
        refusal({**options, "secondaryConnectionString": same}), SameNamespace
    )


@pytest.mark.parametrize("which", ["primary", "secondary"])
def test_a_namespace_that_cannot_be_reached_is_named(
    options: dict[str, object], which: str
) -> None:
    error = refusal({**options, f"{which}ConnectionString": NOWHERE})

    assert isinstance(error, SyphonCannotStart)
    assert error.text.startswith(f"The {which} '127.0.0.1:9': ")


def test_no_backlog_queue_is_said_with_both_names(options: dict[str, object]) -> None:
    error = refusal({**options, "primaryName": "fabrikam"})

    assert isinstance(error, NoBacklogQueue)
    assert "no backlog queue of 'fabrikam'" in error.text


def test_a_key_that_may_not_listen_to_the_backlog_is_refused(
    options: dict[str, object], secondary: ServedNamespace
) -> None:
    text = as_rule(secondary, "sends")

    error = refusal({**options, "secondaryConnectionString": text})

    assert "The key needs the right to Listen." in error.text


def test_a_key_that_may_not_send_home_is_refused(
    options: dict[str, object], primary: ServedNamespace, secondary: ServedNamespace
) -> None:
    text = as_rule(primary, "listens")

    async def put() -> None:
        job, _ = prepare(options, LOCAL)
        async with job.secondary.connection() as connection:
            sender = connection.sender(backlog_path("home", 0))
            await sender.send(divert(message(), "orders", 0))

    asyncio.run(put())
    error = refusal({**options, "primaryConnectionString": text})
    secondary.purge(backlog_path("home", 0))

    assert "The key needs the right to Send." in error.text


@pytest.mark.parametrize("which", ["primary", "secondary"])
def test_a_wrong_key_is_refused_without_showing_it(
    options: dict[str, object], which: str
) -> None:
    """Also the primary's, when there is no message yet that wants to go there."""
    name = f"{which}ConnectionString"
    text = str(options[name]).replace(DEV_KEY_TEXT, "planted-wrong-key")

    error = refusal({**options, name: text})

    assert isinstance(error, SyphonCannotStart)
    assert error.text.startswith(f"The {which} '")
    assert "planted" not in error.text
