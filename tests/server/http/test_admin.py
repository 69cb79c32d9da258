"""The administration API: entities are made, changed, read, listed and deleted."""

from __future__ import annotations

import urllib.parse
from collections.abc import AsyncIterator

import pytest

from tests.server.http.admin_site import ROOT, AdminSite, Answer, local
from twinbus import __version__, limits
from twinbus.errors import TwinbusError
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http.admin.xml import ATOM, COUNTS, ENTRY_TYPE, FEED_TYPE
from twinbus.wire.encoder import encode
from twinbus.wire.message import sections
from twinbus.wire.types import Described, ULong

pytestmark = pytest.mark.turns

QUEUE_ORDER = [
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "SizeInBytes",
    "MessageCount",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableExpress",
    "ForwardTo",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
]
TOPIC_ORDER = [
    "DefaultMessageTimeToLive",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableBatchedOperations",
    "SizeInBytes",
    "FilteringMessagesBeforePublishing",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "SubscriptionCount",
    "SqlFilterCount",
    "CorrelationFilterCount",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableSubscriptionPartitioning",
    "EnableExpress",
    "UserMetadata",
    "MaxMessageSizeInKilobytes",
]
SUBSCRIPTION_ORDER = [
    "LockDuration",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DeadLetteringOnFilterEvaluationExceptions",
    "MessageCount",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "Status",
    "ForwardTo",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "AutoDeleteOnIdle",
    "EntityAvailabilityStatus",
    "IsClientAffine",
]
QUEUE_SETTINGS = {
    "LockDuration": "PT5S",
    "MaxSizeInMegabytes": "2048",
    "RequiresDuplicateDetection": "true",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": "PT1H30M",
    "DeadLetteringOnMessageExpiration": "true",
    "DuplicateDetectionHistoryTimeWindow": "PT20S",
    "MaxDeliveryCount": "3",
    "EnableBatchedOperations": "false",
    "Status": "ReceiveDisabled",
    "SupportOrdering": "false",
    "AutoDeleteOnIdle": "PT5M",
    "EnablePartitioning": "false",
    "EnableExpress": "true",
    "ForwardTo": "sb://contoso.example/other",
    "UserMetadata": "a <b> & 'c' \"d\"",
    "ForwardDeadLetteredMessagesTo": "sb://contoso.example/other",
    "MaxMessageSizeInKilobytes": "1024",
}
TOPIC_SETTINGS = {
    "DefaultMessageTimeToLive": "P1D",
    "MaxSizeInMegabytes": "3072",
    "RequiresDuplicateDetection": "true",
    "DuplicateDetectionHistoryTimeWindow": "P7D",
    "EnableBatchedOperations": "false",
    "FilteringMessagesBeforePublishing": "true",
    "Status": "SendDisabled",
    "SupportOrdering": "false",
    "AutoDeleteOnIdle": "PT6M",
    "EnablePartitioning": "false",
    "EnableSubscriptionPartitioning": "true",
    "EnableExpress": "true",
    "UserMetadata": "m",
    "MaxMessageSizeInKilobytes": "102400",
}
SUBSCRIPTION_SETTINGS = {
    "LockDuration": "PT5M",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": "PT1S",
    "DeadLetteringOnMessageExpiration": "true",
    "DeadLetteringOnFilterEvaluationExceptions": "false",
    "MaxDeliveryCount": "1",
    "EnableBatchedOperations": "false",
    "Status": "Disabled",
    "ForwardTo": "sb://contoso.example/other",
    "UserMetadata": "m",
    "ForwardDeadLetteredMessagesTo": "sb://contoso.example/other",
    "AutoDeleteOnIdle": "PT7M",
}
KINDS = {
    "/q": ("QueueDescription", QUEUE_SETTINGS, QUEUE_ORDER),
    "/t": ("TopicDescription", TOPIC_SETTINGS, TOPIC_ORDER),
    "/events/subscriptions/s": (
        "SubscriptionDescription",
        SUBSCRIPTION_SETTINGS,
        SUBSCRIPTION_ORDER,
    ),
}


@pytest.fixture
async def site() -> AsyncIterator[AdminSite]:
    site = AdminSite()
    await site.put("/other", "QueueDescription")
    await site.put("/events", "TopicDescription")
    yield site
    await site.host.close()


def written(settings: dict[str, str]) -> str:
    escaped = {
        name: text.replace("&", "&amp;").replace("<", "&lt;")
        for name, text in settings.items()
    }
    return "".join(f"<{name}>{text}</{name}>" for name, text in escaped.items())


@pytest.mark.parametrize("path", KINDS)
async def test_every_setting_comes_back_in_the_documented_order(
    site: AdminSite, path: str
) -> None:
    kind, settings, order = KINDS[path]

    created = await site.put(path, kind, written(settings))
    read = await site.get(path)

    assert created.status == 201
    assert created.elements == [name for name in order if name != "CountDetails"]
    assert read.status == 200
    assert read.elements == order
    assert {name: read.values[name] for name in settings} == settings
    assert read.headers["content-type"] == ENTRY_TYPE


@pytest.mark.parametrize("path", KINDS)
async def test_every_setting_that_may_change_can_be_changed(
    site: AdminSite, path: str
) -> None:
    kind, settings, _ = KINDS[path]
    fixed = ("RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning")
    wanted = {name: text for name, text in settings.items() if name not in fixed}
    created = await site.put(path, kind)
    site.clock.advance(1000)

    changed = await site.put(path, kind, written(wanted), if_match="*")

    assert changed.status == 200
    values = (await site.get(path)).values
    assert {name: values[name] for name in wanted} == wanted
    assert values["CreatedAt"] == created.values["CreatedAt"]
    assert values["UpdatedAt"] != created.values["UpdatedAt"]
    assert changed.headers["etag"] != created.headers["etag"]


async def test_settings_missing_from_an_update_get_their_defaults(
    site: AdminSite,
) -> None:
    inner = written(QUEUE_SETTINGS)
    await site.put("/q", "QueueDescription", inner)

    await site.put("/q", "QueueDescription", if_match="*")

    values = (await site.get("/q")).values
    assert values["LockDuration"] == "PT1M"
    assert "ForwardTo" not in values
    assert "UserMetadata" not in values
    assert values["RequiresDuplicateDetection"] == "true"


async def test_the_defaults_are_those_of_the_real_service(site: AdminSite) -> None:
    values = (await site.get("/other")).values

    assert values == {
        **values,
        "LockDuration": "PT1M",
        "MaxSizeInMegabytes": "1024",
        "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
        "AutoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
        "DuplicateDetectionHistoryTimeWindow": "PT10M",
        "MaxDeliveryCount": "10",
        "EnableBatchedOperations": "true",
        "SupportOrdering": "true",
        "Status": "Active",
        "EntityAvailabilityStatus": "Available",
        "MaxMessageSizeInKilobytes": "256",
        "IsAnonymousAccessible": "false",
        "AccessedAt": "0001-01-01T00:00:00Z",
        "AuthorizationRules": None,
    }


async def test_the_longest_duration_of_the_python_client_means_unlimited(
    site: AdminSite,
) -> None:
    text = "P10675199DT2H48M5.477539S"
    inner = f"<DefaultMessageTimeToLive>{text}</DefaultMessageTimeToLive>"

    made = await site.put("/q", "QueueDescription", inner)

    assert made.values["DefaultMessageTimeToLive"] == "P10675199DT2H48M5.4775807S"


async def test_a_partitioned_queue_shows_the_size_of_all_its_fragments(
    site: AdminSite,
) -> None:
    inner = "<EnablePartitioning>true</EnablePartitioning>"
    made = await site.put("/q", "QueueDescription", inner)
    shown = made.values["MaxSizeInMegabytes"]
    inner = f"<MaxSizeInMegabytes>{shown}</MaxSizeInMegabytes>"

    changed = await site.put("/q", "QueueDescription", inner, if_match="*")

    assert (shown, changed.values["MaxSizeInMegabytes"]) == ("1024", "1024")


# -- entries and feeds -----------------------------------------------------------------


async def test_an_entry_has_the_title_and_id_that_clients_read_names_from(
    site: AdminSite,
) -> None:
    path = "/events/Subscriptions/All"
    await site.put(path, "SubscriptionDescription")

    entry = (await site.get(f"{path}?api-version=2021-05&enrich=false")).tree

    def text(name: str) -> str | None:
        return entry.findtext(f"{{{ATOM}}}{name}")

    assert text("id") == f"{ROOT}{path}?api-version=2021-05&enrich=false"
    assert text("title") == "All"
    assert entry.findtext(f"{{{ATOM}}}author/{{{ATOM}}}name") == "contoso"
    assert text("published") == text("updated") == "2023-11-14T22:13:20.000Z"
    assert entry.find(f"{{{ATOM}}}link") is not None


async def test_count_details_declare_one_prefix_on_themselves(site: AdminSite) -> None:
    read = await site.get("/other")

    assert f'<CountDetails xmlns:d2p1="{COUNTS}"><d2p1:ActiveMessageCount>' in read.text
    (counts,) = (e for e in read.description if local(e.tag) == "CountDetails")
    assert [local(count.tag) for count in counts] == [
        "ActiveMessageCount",
        "DeadLetterMessageCount",
        "ScheduledMessageCount",
        "TransferMessageCount",
        "TransferDeadLetterMessageCount",
    ]


@pytest.mark.parametrize("path", ["/no", "/a/b/c"])
async def test_a_missing_queue_or_topic_is_answered_with_an_empty_feed(
    site: AdminSite, path: str
) -> None:
    read = await site.get(path)

    assert read.status == 200
    assert read.headers["content-type"] == FEED_TYPE
    assert read.tree.findtext(f"{{{ATOM}}}title") == "Publicly Listed Services"
    assert read.entries == []


@pytest.mark.parametrize(
    "path",
    [
        "/events/subscriptions/no",
        "/no/subscriptions/s",
        "/events/subscriptions/s/rules/no",
        "/events/subscriptions/no/rules/$Default",
    ],
)
async def test_what_is_missing_below_a_topic_is_not_found(
    site: AdminSite, path: str
) -> None:
    await site.put("/events/subscriptions/s", "SubscriptionDescription")

    assert (await site.get(path)).status == 404


async def test_pages_of_a_list_link_to_the_next_page(site: AdminSite) -> None:
    for number in range(5):
        await site.put(f"/list{number}", "QueueDescription")
    found: list[str | None] = []
    path: str | None = "/$Resources/queues?api-version=2021-05&$skip=0&$top=2"
    pages = 0

    while path is not None:
        page = await site.get(path)
        found += page.titles
        pages += 1
        following = page.links.get("next")
        path = following.removeprefix(ROOT) if following else None
        assert len(page.links) == (2 if following else 1)

    assert found == [f"list{number}" for number in range(5)] + ["other"]
    assert pages == 3


async def test_a_page_is_bounded(site: AdminSite) -> None:
    count = limits.ADMIN_PAGE_ENTRIES_MAX
    for number in range(count):
        await site.put(f"/list{number}", "QueueDescription")

    usual = await site.get("/$resources/Queues/")
    greedy = await site.get("/$Resources/queues?$top=1000000&api-version=2021-05")

    assert len(usual.entries) == len(greedy.entries) == count
    query = urllib.parse.urlsplit(usual.links["next"]).query
    assert urllib.parse.parse_qs(query) == {
        "api-version": ["2024-05"],
        "$skip": [str(count)],
        "$top": [str(count)],
    }


async def test_lists_contain_only_entities_of_their_kind(site: AdminSite) -> None:
    await site.put("/events/subscriptions/One", "SubscriptionDescription")

    subscriptions = await site.get("/events/Subscriptions/")
    rules = await site.get("/events/subscriptions/one/rules")

    assert (await site.get("/$Resources/topics")).titles == ["events"]
    assert subscriptions.titles == ["One"]
    assert f"{ROOT}/events/Subscriptions/One?" in subscriptions.text
    assert rules.titles == ["$Default"]
    assert f"{ROOT}/events/Subscriptions/One/Rules/$Default?" in rules.text
    titles = (subscriptions.tree[0].text, rules.tree[0].text)
    assert titles == ("Subscriptions", "Rules")


@pytest.mark.parametrize("query", ["$skip=-1", "$top=-1", "$skip=x", "$filter=a"])
async def test_a_bad_page_is_refused(site: AdminSite, query: str) -> None:
    answer = await site.get(f"/$Resources/queues?api-version=2021-05&{query}")

    assert answer.status == 400
    assert "SubCode=40000" in answer.detail


async def test_the_namespace_describes_itself(site: AdminSite) -> None:
    site.clock.advance(5000)
    await site.put("/late", "QueueDescription")

    values = (await site.get("/$namespaceinfo")).values

    assert values == {
        "CreatedTime": "2023-11-14T22:13:20.000Z",
        "MessagingSKU": "Premium",
        "MessagingUnits": "1",
        "ModifiedTime": "2023-11-14T22:13:25.000Z",
        "Name": "contoso",
        "NamespaceType": "Messaging",
    }


@pytest.mark.parametrize("path", ["/a/b/0", "/a%2Fb%2F0", "/a%2fb/0", "/A/B/0/"])
async def test_names_may_have_slashes(site: AdminSite, path: str) -> None:
    await site.put("/a/b/0", "QueueDescription")

    assert (await site.get(path)).tree.findtext(f"{{{ATOM}}}title") == "a/b/0"
    assert (await site.ask("DELETE", path)).status == 200
    assert (await site.get("/a/b/0")).entries == []


async def test_deleting_a_topic_drops_its_subscriptions(site: AdminSite) -> None:
    await site.put("/events/subscriptions/s", "SubscriptionDescription")

    assert (await site.ask("DELETE", "/events")).status == 200

    assert (await site.get("/events/subscriptions/s")).entries == []
    assert len(site.host.namespace.entities) == 1


# -- state -----------------------------------------------------------------------------


class Work:
    """Messages that are sent in a turn, and what became of it (`host.Reply`)."""

    def __init__(self, site: AdminSite, *sends: tuple[str, int | None]) -> None:
        self._sends = sends
        self.failure: Exception | None = None
        site.host.submit(self._send, self)

    def _send(self, namespace: Namespace, turn: Turn) -> None:
        body = encode(Described(ULong(0x75), b"x"))
        for name, due_ms in self._sends:
            entity = namespace.entities.find(name)
            assert entity is not None
            message = sections.parse(body)
            message.scheduled_ms = due_ms
            namespace.send(entity, [message], turn)

    def done(self, result: None) -> None:
        """Nothing to tell."""

    def failed(self, error: TwinbusError) -> None:
        self.failure = error


def counts_of(answer: Answer) -> list[int]:
    (counts,) = (e for e in answer.description if local(e.tag) == "CountDetails")
    return [int(count.text or "") for count in counts]


async def test_counts_and_sizes_are_exact(site: AdminSite) -> None:
    await site.put("/events/subscriptions/s", "SubscriptionDescription")
    due_ms = site.clock.now_ms() + 60_000
    sends = ("other", None), ("other", None), ("other", due_ms), ("events", None)
    work = Work(site, *sends)

    queue, topic = await site.get("/other"), await site.get("/events")
    subscription = await site.get("/events/subscriptions/s")

    assert work.failure is None
    assert counts_of(queue) == [2, 0, 1, 0, 0]
    assert queue.values["MessageCount"] == "3"
    assert int(queue.values["SizeInBytes"] or "") > 0
    assert queue.values["AccessedAt"] == "2023-11-14T22:13:20.000Z"
    assert counts_of(subscription) == [1, 0, 0, 0, 0]
    assert topic.values["SubscriptionCount"] == "1"
    assert int(topic.values["SizeInBytes"] or "") > 0


async def test_a_topic_counts_filters_in_the_newest_version_alone(
    site: AdminSite,
) -> None:
    await site.put("/events/subscriptions/s", "SubscriptionDescription")
    inner = '<Filter i:type="CorrelationFilter"><Label>x</Label></Filter>'
    await site.put("/events/subscriptions/s/rules/r", "RuleDescription", inner)

    new, old = await site.get("/events"), await site.get("/events?api-version=2021-05")

    assert new.values["SqlFilterCount"] == new.values["CorrelationFilterCount"] == "1"
    assert "SqlFilterCount" not in old.values


# -- the namespace itself --------------------------------------------------------------


async def test_the_root_lists_queues_and_topics(site: AdminSite) -> None:
    await site.put("/events/subscriptions/all", "SubscriptionDescription")

    answer = await site.get("/")

    assert (answer.status, answer.headers["content-type"]) == (200, FEED_TYPE)
    assert answer.titles == ["events", "other"]
    assert [local(e[-1][0].tag) for e in answer.entries] == [
        *("TopicDescription", "QueueDescription")
    ]


async def test_a_stranger_sees_a_page_and_no_entities(site: AdminSite) -> None:
    await site.put("/orders", "QueueDescription")
    browser = "text/html,application/xhtml+xml,*/*;q=0.8"

    page = await site.ask("GET", "/", authorization=None, accept=browser)
    feed = await site.ask("GET", "/", authorization=None)
    below = await site.ask("GET", "/orders", authorization=None, accept=browser)
    no_host = await site.ask("GET", "/", authorization=None, host="a b")

    assert (page.status, feed.status) == (200, 200)
    assert page.headers["content-type"].startswith("text/html")
    assert f"<h1>twinbus {__version__}</h1>" in page.text
    assert 'href="/health"' in page.text
    assert "orders" not in page.text + feed.text
    assert feed.tree.findtext(f"{{{ATOM}}}title") == "Publicly Listed Services"
    assert feed.entries == []
    assert (below.status, no_host.status) == (401, 400)
