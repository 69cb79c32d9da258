"""Planted secrets are in no ledger, and in nothing that a report says.

Two servers and a paired application write ledgers. Keys, tokens, connection strings and
parts of messages that can be recognised are given to them where they belong, and where
they do not: as names of entities, in paths and in URLs. Then the rows of all ledgers,
and the page, the JSON and the tables of a report are searched.
"""

from __future__ import annotations

import http.client
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from pyspark.sql import SparkSession

import twinbus.aio
from tests.cost.ledgers import row, write
from tests.ledger.reading import events, rows
from tests.pairing.pair_site import wait_for
from tests.test_secrets import Findings, rule
from twinbus.cli.cost_report import _show
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.cost.prices import load_prices
from twinbus.errors import ConfigError
from twinbus.ledger.counts import NO_NAME
from twinbus.ledger.schema import METADATA_KEY, OPERATION_COLUMNS, arrow_schema
from twinbus.pairing.events import EventKind
from twinbus.spark.reports.files import without_secrets
from twinbus.spark.reports.job import ReportPlan, report
from twinbus.spark.reports.kept import Kept
from twinbus.testing.namespace import ServedNamespace, serve_namespace
from twinbus.testing.proxy import FaultyProxy

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

PLANTED = "planted-5af1c0"


@dataclass
class Story:
    """The ledgers that are left, and what must not be in them."""

    ledgers: list[Path]
    found: Findings = field(default_factory=Findings)


def connection_of(namespace: ServedNamespace, port: int, name: str, key: str) -> str:
    text = namespace.connection_string.replace(f":{namespace.amqp_port}", f":{port}")
    text = text.replace(f"KeyName={DEV_KEY_NAME}", f"KeyName={name}")
    return text.replace(f"AccessKey={DEV_KEY_TEXT}", f"AccessKey={key}")


def message() -> ServiceBusMessage:
    return ServiceBusMessage(
        f"{PLANTED}-body",
        message_id=f"{PLANTED}-id",
        subject=f"{PLANTED}-subject",
        correlation_id=f"{PLANTED}-correlation",
        application_properties={f"{PLANTED}-name": f"{PLANTED}-value"},
    )


async def send_in_an_outage(
    home: ServedNamespace, away: ServedNamespace, ledger: Path, key: str
) -> None:
    """Send through a pair before, in and after an outage, also to wrong names."""
    factory_of = twinbus.aio.MessagingFactory.from_connection_string
    with FaultyProxy("127.0.0.1", home.amqp_port) as proxy:
        text = connection_of(home, proxy.port, "all", key)
        async with (
            factory_of(text, ledger=ledger, try_timeout=5) as primary,
            factory_of(away.connection_string) as secondary,
            away.async_admin_client() as manager,
        ):
            options = twinbus.aio.SendAvailabilityPairedNamespaceOptions(
                manager,
                secondary,
                backlog_queue_count=1,
                failover_interval=0,
                ping_primary_interval=1,
                primary_name="home",
                enable_syphon=False,
            )
            await primary.pair_namespace(options)
            told = primary.pairing.events()
            sender = primary.get_queue_sender("orders")
            await sender.send_messages(message())
            for name in (text, key):
                with pytest.raises(ValueError, match="Give the name") as refused:
                    primary.get_queue_sender(name)
                assert key not in str(refused.value)
            proxy.refuse()
            proxy.cut()
            await sender.send_messages(message())
            proxy.heal()
            await wait_for(told, EventKind.FAILED_BACK)
            await sender.send_messages(message())


async def fail_to_log_in(home: ServedNamespace, ledger: Path, found: Findings) -> None:
    """Send with a wrong key, and with name and key exchanged."""
    factory_of = twinbus.aio.MessagingFactory.from_connection_string
    for name, key in (("all", found.key()), (found.key(), "all")):
        text = connection_of(home, home.amqp_port, name, key)
        async with factory_of(text, ledger=ledger, retry_total=0) as factory:
            with pytest.raises(ServiceBusError):
                await factory.get_queue_sender("orders").send_messages(message())


def use_http(home: ServedNamespace, found: Findings, key: str) -> None:
    """Requests with tokens in their headers, and where they do not belong."""
    good = found.token("http://localhost/", "all", key)
    in_path = urllib.parse.quote(good, safe="")
    for path in (
        f"/{in_path}/messages",
        f"/{urllib.parse.quote(key, safe='')}/messages",
        f"/orders/messages?token={in_path}",
        f"/orders%20{in_path}/messages/head",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", home.http_port)
        headers = {"Authorization": good, "Host": "localhost"}
        connection.request("POST", path, PLANTED, headers)
        connection.getresponse().read()
        connection.close()


@pytest.fixture
async def story(tmp_path: Path) -> Story:
    """What servers and an application have counted."""
    names = ("home", "away", "client")
    told = Story([tmp_path / name for name in names])
    key = told.found.key()
    settings = {
        "queues": ["orders"],
        "authorization_rules": [rule("all", key, "Manage", "Send", "Listen")],
        "ledger": str(told.ledgers[0]),
    }
    told.found.secrets |= {PLANTED, DEV_KEY_TEXT}
    with (
        serve_namespace(settings, name="home") as home,
        serve_namespace({"ledger": str(told.ledgers[1])}, name="away") as away,
    ):
        await send_in_an_outage(home, away, told.ledgers[2], key)
        await fail_to_log_in(home, told.ledgers[2], told.found)
        use_http(home, told.found, key)
    return told


def leaks(found: Findings, where: str, text: object) -> list[str]:
    """Where a secret was said, in any case of its letters."""
    forms = {
        form for each in found.secrets for form in (each, urllib.parse.quote(each))
    }
    said = str(text).lower()
    return [f"{each} in {where}" for each in forms if each.lower() in said]


async def test_no_ledger_has_a_planted_secret(story: Story) -> None:
    for ledger in story.ledgers:
        for table in (rows(ledger), events(ledger)):
            assert leaks(story.found, ledger.name, table) == []
        for path in ledger.rglob("*"):
            assert leaks(story.found, "a name", path) == []
    # Wrong names are counted, under a name of their own.
    assert NO_NAME in {each["entity"] for each in rows(story.ledgers[0])}


def plant_files(folder: Path) -> None:
    """Files that cannot be used, with a secret in each."""
    good = write(folder, [row("10:00", "contoso", "send", 5)])
    day, content = good.parent, good.read_bytes()
    schema = arrow_schema(OPERATION_COLUMNS)
    foreign = schema.with_metadata({METADATA_KEY: PLANTED})
    pq.write_table(foreign.empty_table(), day / "foreign.parquet")
    (day / "damaged.parquet").write_bytes(PLANTED.encode() + content[:-20])
    (day / "notes.csv").write_text(PLANTED)


async def test_no_report_has_a_planted_secret(
    spark: SparkSession,
    story: Story,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plant_files(tmp_path / "files")
    plan = ReportPlan([*map(str, story.ledgers), str(tmp_path / "files")])
    book, page = load_prices(None), tmp_path / "page.html"

    found = report(spark, plan)
    for as_json in (True, False):
        _show(found, book, plan, page, as_json=as_json)

    printed = capsys.readouterr()
    said = {"standard output": printed.out, "standard error": printed.err}
    for where, text in {**said, "the page": page.read_text()}.items():
        assert leaks(story.found, where, text) == []
        # What was looked for could have been found, and much was looked at.
        assert "orders" in text or "foreign.parquet" in text
    assert len(found.bad_files) == 3
    assert "failed over" in {each["event"] for each in events(story.ledgers[2])}
    assert [each["primary"] for each in found.outages] == ["home"]


URLS = {
    "s3a://name:planted@bucket/ledger": "s3a://name:...@bucket/ledger",
    "s3a://name:planted/x@bucket/ledger": "s3a://name:...@bucket/ledger",
    "https://host/ledger?sv=1&sig=planted": "https://host/ledger?...",
    "sc://host:15002/;token=planted": "sc://host:15002/;...",
    "abfss://container@host/ledger": "abfss://container@host/ledger",
    "hdfs://host:8020/ledger": "hdfs://host:8020/ledger",
    "/data/ledger?;x@y": "/data/ledger?;x@y",
}


@pytest.mark.parametrize("url", URLS)
def test_urls_are_named_without_passwords_and_parameters(url: str) -> None:
    assert (
        without_secrets(f"It is {url} that failed") == f"It is {URLS[url]} that failed"
    )


def test_a_url_that_is_refused_is_named_without_its_password() -> None:
    with pytest.raises(ConfigError) as refused:
        Kept.open("s3a://name:planted@bucket/kept")

    assert "planted" not in refused.value.text
    assert "s3a://name:...@bucket/kept" in refused.value.text
