"""The administration API: what is refused, with which status and which words."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.http.admin_site import AdminSite, described
from twinbus import limits
from twinbus.errors import StoreFault
from twinbus.server.http.admin.xml import ATOM, ERROR_TYPE


@pytest.fixture
async def site() -> AsyncIterator[AdminSite]:
    site = AdminSite()
    await site.put("/other", "QueueDescription")
    await site.put("/events", "TopicDescription")
    yield site
    await site.host.close()


async def test_an_existing_entity_cannot_be_created_again(site: AdminSite) -> None:
    path = "/events/subscriptions/s"
    await site.put(path, "SubscriptionDescription")

    queue = await site.put("/OTHER", "QueueDescription")
    topic_as_queue = await site.put("/events", "QueueDescription")
    subscription = await site.put(path, "SubscriptionDescription")
    rule = await site.put(f"{path}/rules/$default", "RuleDescription")

    statuses = [a.status for a in (queue, topic_as_queue, subscription, rule)]
    assert statuses == [409] * 4
    assert queue.detail.startswith("SubCode=40900. Conflict.")
    assert "'contoso:Topic:events|s' already exists" in subscription.detail
    assert "'contoso:Topic:events|s|$default' already exists" in rule.detail
    assert queue.headers["content-type"] == ERROR_TYPE


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("/no", "QueueDescription", "SubCode=40400. Not Found."),
        ("/events/subscriptions/no", "SubscriptionDescription", "'contoso:Topic:even"),
        ("/events/subscriptions/no/rules/r", "RuleDescription", "was not found"),
    ],
)
async def test_a_missing_entity_cannot_be_changed_or_deleted(
    site: AdminSite, path: str, kind: str, text: str
) -> None:
    changed = await site.put(path, kind, if_match="*")
    deleted = await site.ask("DELETE", path)

    assert (changed.status, deleted.status) == (404, 404)
    assert text in changed.detail
    assert deleted.detail.startswith("No service is hosted at the specified address.")


async def test_a_subscription_needs_a_topic(site: AdminSite) -> None:
    for path in ("/no/subscriptions/s", "/other/subscriptions/s"):
        made = await site.put(path, "SubscriptionDescription")
        listed = await site.get(path.rpartition("/")[0])

        assert (made.status, listed.status) == (404, 404)


@pytest.mark.parametrize(
    "inner",
    [
        "<LockDuration>PT5M1S</LockDuration>",
        "<LockDuration>5 minutes</LockDuration>",
        "<LockDuration/>",
        "<MaxDeliveryCount>0</MaxDeliveryCount>",
        "<MaxDeliveryCount>1_0</MaxDeliveryCount>",
        "<MaxDeliveryCount>99999999999999999999</MaxDeliveryCount>",
        "<RequiresSession>maybe</RequiresSession>",
        "<Status>Renaming</Status>",
        "<AutoDeleteOnIdle>PT4M59S</AutoDeleteOnIdle>",
        "<MaxMessageSizeInKilobytes>1023</MaxMessageSizeInKilobytes>",
        "<ForwardTo>sb://contoso.example/nowhere</ForwardTo>",
        "<ForwardTo>q</ForwardTo>",
        "<AuthorizationRules><AuthorizationRule/></AuthorizationRules>",
    ],
)
async def test_a_bad_value_is_refused_and_nothing_is_made(
    site: AdminSite, inner: str
) -> None:
    answer = await site.put("/q", "QueueDescription", inner)

    assert answer.status == 400
    assert answer.detail.startswith("SubCode=40000.")
    assert (await site.get("/q")).entries == []


async def test_the_duplicate_window_has_its_bounds(site: AdminSite) -> None:
    name = "DuplicateDetectionHistoryTimeWindow"
    for text, status in (("PT19S", 400), ("PT20S", 201), ("P7DT1S", 400)):
        answer = await site.put("/q", "QueueDescription", f"<{name}>{text}</{name}>")
        assert answer.status == status


@pytest.mark.parametrize(
    "name", ["RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning"]
)
async def test_settings_fixed_at_creation_cannot_be_changed(
    site: AdminSite, name: str
) -> None:
    inner = f"<{name}>true</{name}>"

    answer = await site.put("/other", "QueueDescription", inner, if_match="*")

    assert answer.status == 400
    assert (await site.get("/other")).values[name] == "false"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/q", "SubscriptionDescription"),
        ("/q", "RuleDescription"),
        ("/q", "Nonsense"),
        ("/events/subscriptions/s", "QueueDescription"),
        ("/events/subscriptions/s/rules/r", "QueueDescription"),
    ],
)
async def test_a_description_belongs_to_its_path(
    site: AdminSite, path: str, kind: str
) -> None:
    await site.put("/events/subscriptions/s", "SubscriptionDescription")

    assert (await site.put(path, kind, if_match=None)).status == 400


async def test_a_queue_cannot_become_a_topic(site: AdminSite) -> None:
    assert (await site.put("/other", "TopicDescription", if_match="*")).status == 400


async def test_an_unknown_property_is_refused_by_the_old_version_alone(
    site: AdminSite,
) -> None:
    large = "<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>"

    for inner in (large, "<Novel>1</Novel>"):
        body = described("QueueDescription", inner)
        old = await site.ask("PUT", "/old?api-version=2017-04", body)
        assert old.status == 400
    new = await site.ask("PUT", "/new?api-version=2021-05", body)
    shown = await site.get("/new?api-version=2017-04")

    assert new.status == 201
    assert "MaxMessageSizeInKilobytes" not in shown.values


@pytest.mark.parametrize("version", ["x", "2021", "2021-05-01", ""])
async def test_an_invalid_api_version_is_refused(site: AdminSite, version: str) -> None:
    assert (await site.get(f"/other?api-version={version}")).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"<entry/>",
        b"<a>" * 1000,
        b"no xml",
        f'<entry xmlns="{ATOM}"/>'.encode(),
        f'<entry xmlns="{ATOM}"><content/></entry>'.encode(),
        b'<!DOCTYPE e><entry xmlns="http://www.w3.org/2005/Atom"/>',
        b'<!DOCTYPE e [<!ENTITY a "aaaa">]><entry>&a;</entry>',
        b'<!DOCTYPE e [<!ENTITY a SYSTEM "file:///etc/passwd">]><entry>&a;</entry>',
        b'<?xml version="1.0" encoding="nonsense"?><entry/>',
    ],
)
async def test_a_body_that_is_no_entry_is_refused(site: AdminSite, body: bytes) -> None:
    answer = await site.ask("PUT", "/q", body)

    assert answer.status == 400
    assert answer.detail.startswith("SubCode=40000.")


@pytest.mark.parametrize(("more", "status"), [(-1, 201), (0, 201), (1, 413)])
async def test_a_body_is_bounded(site: AdminSite, more: int, status: int) -> None:
    body = described("QueueDescription").encode()
    body += b" " * (limits.ADMIN_BODY_BYTES_MAX + more - len(body))

    answer = await site.ask("PUT", "/q", body)

    assert answer.status == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/$Resources/queues", 405),
        ("DELETE", "/$namespaceinfo", 405),
        ("DELETE", "/events/subscriptions", 405),
        ("PUT", "/", 405),
        ("GET", "//", 400),
        ("GET", "/a//b", 400),
        ("GET", "/%2F/other", 400),
        ("GET", "/%ff", 400),
        ("GET", "/events/subscriptions/s/other/x", 400),
    ],
)
async def test_other_requests_are_refused(
    site: AdminSite, method: str, path: str, status: int
) -> None:
    body = described("QueueDescription") if method == "PUT" else ""

    assert (await site.ask(method, path, body)).status == status


async def test_an_old_etag_is_refused(site: AdminSite) -> None:
    etag = (await site.get("/other")).headers["etag"]
    site.clock.advance(1)

    first = await site.put("/other", "QueueDescription", if_match=etag)
    second = await site.put("/other", "QueueDescription", if_match=etag)

    assert (first.status, second.status) == (200, 412)
    assert "SubCode=41200" in second.detail


# -- the store -------------------------------------------------------------------------


async def test_a_stopped_store_is_an_error_of_the_service(site: AdminSite) -> None:
    site.host.fault = StoreFault("The disk is full.")

    answer = await site.put("/q", "QueueDescription")

    assert answer.status == 500
    assert answer.detail.startswith("SubCode=50000. ")
    assert "The disk is full." in answer.detail
    site.host.fault = None
