"""Options: what is refused, when, and in which words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from twinbus.pairing import errors
from twinbus.pairing.options import (
    FactoryFacts,
    PairedNamespaceOptions,
    SendAvailabilityPairedNamespaceOptions,
    check_pairing,
)
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.packing import HEADROOM_BYTES_MAX

MANAGER = object()
FACTORY = object()


def make(*arguments: Any, **keywords: Any) -> SendAvailabilityPairedNamespaceOptions:
    return SendAvailabilityPairedNamespaceOptions(
        MANAGER, FACTORY, *arguments, **keywords
    )


def test_the_defaults_are_the_original_ones() -> None:
    options = make()

    assert options.secondary_namespace_manager is MANAGER
    assert options.secondary_messaging_factory is FACTORY
    assert options.backlog_queue_count == 10
    assert options.failover_interval == timedelta(minutes=1)
    assert options.enable_syphon is False
    assert options.ping_primary_interval == timedelta(minutes=1)
    assert options.primary_name is None
    assert options.hold_during_failover is True
    assert options.on_event is None
    assert options.classifier is None
    assert options.probe is None
    assert options.ttl == "remaining"


def test_the_parameters_come_in_the_original_order() -> None:
    options = make(5, timedelta(seconds=30), True)

    assert options.backlog_queue_count == 5
    assert options.failover_interval == timedelta(seconds=30)
    assert options.enable_syphon is True


def test_the_base_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        PairedNamespaceOptions(MANAGER, FACTORY)  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("manager", "factory", "name"),
    [
        (None, FACTORY, "secondary_namespace_manager"),
        (MANAGER, None, "messaging_factory"),
    ],
)
def test_manager_and_factory_must_be_present(
    manager: Any, factory: Any, name: str
) -> None:
    with pytest.raises(TypeError, match=name):
        SendAvailabilityPairedNamespaceOptions(manager, factory)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("backlog_queue_count", 0, ValueError),
        ("backlog_queue_count", -1, ValueError),
        ("backlog_queue_count", 1.0, TypeError),
        ("backlog_queue_count", True, TypeError),
        ("backlog_queue_count", "1", TypeError),
        ("failover_interval", -0.001, ValueError),
        ("failover_interval", timedelta(minutes=60, milliseconds=1), ValueError),
        ("failover_interval", float("nan"), ValueError),
        ("failover_interval", float("inf"), ValueError),
        ("failover_interval", "PT1M", TypeError),
        ("failover_interval", True, TypeError),
        ("failover_interval", None, TypeError),
        ("enable_syphon", 1, TypeError),
        ("ping_primary_interval", 0.999, ValueError),
        ("ping_primary_interval", timedelta(minutes=30, seconds=1), ValueError),
        ("ping_primary_interval", None, TypeError),
        ("primary_name", "", ValueError),
        ("primary_name", "a b", ValueError),
        ("primary_name", "a" * 250, ValueError),
        ("primary_name", 5, TypeError),
        ("hold_during_failover", None, TypeError),
        ("on_event", "print", TypeError),
        ("classifier", 5, TypeError),
        ("probe", "message", ValueError),
        ("ttl", "forever", ValueError),
        ("novelty", 1, TypeError),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(
    name: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=name):
        make(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("backlog_queue_count", 1, 1),
        ("backlog_queue_count", 1000, 1000),
        ("failover_interval", 0, timedelta(0)),
        ("failover_interval", timedelta(0), timedelta(0)),
        ("failover_interval", timedelta(minutes=60), timedelta(minutes=60)),
        ("failover_interval", 2.5, timedelta(seconds=2.5)),
        ("ping_primary_interval", 1, timedelta(seconds=1)),
        ("ping_primary_interval", timedelta(minutes=30), timedelta(minutes=30)),
        ("primary_name", "contoso", "contoso"),
        ("hold_during_failover", False, False),
        ("on_event", print, print),
        ("probe", "link", "link"),
        ("probe", "ping", "ping"),
        ("probe", None, None),
        ("ttl", "restart", "restart"),
    ],
)
def test_a_value_within_its_range_is_taken(name: str, value: Any, found: Any) -> None:
    assert getattr(make(**{name: value}), name) == found


def test_after_pairing_the_count_tells_how_many_queues_there_are() -> None:
    options = make(5)
    assert list(options.asked_indexes) == [0, 1, 2, 3, 4]
    assert options.usable_indexes == frozenset()

    options.set_usable(frozenset({0, 2, 4}))

    assert options.backlog_queue_count == 3
    assert options.usable_indexes == {0, 2, 4}
    assert list(options.asked_indexes) == [0, 1, 2, 3, 4]


def test_the_count_reads_zero_if_no_queue_could_be_made() -> None:
    options = make()

    options.set_usable(frozenset())

    assert options.backlog_queue_count == 0


def test_size_headroom_tells_how_many_bytes_the_aliases_add() -> None:
    assert make().size_headroom == HEADROOM_BYTES_MAX
    assert 300 < make().size_headroom < 600


def test_the_policy_gets_its_settings_from_the_options() -> None:
    settings = make(
        failover_interval=0, ping_primary_interval=5, hold_during_failover=False
    ).policy_settings()

    assert settings.failover_interval_ms == 0
    assert settings.ping_interval_ms == 5_000
    assert settings.hold is False


def test_an_applications_classifier_is_kept() -> None:
    def own(error: BaseException) -> Verdict | None:
        del error
        return None

    assert make(classifier=own).classifier is own


# -- pairing -----------------------------------------------------------------------


PRIMARY = FactoryFacts("contoso.servicebus.windows.net", 5671)
SECONDARY = FactoryFacts("fabrikam.servicebus.windows.net", 5671)
LOCAL = FactoryFacts("127.0.0.1", 5672)


def test_two_free_factories_can_be_paired_once() -> None:
    options = make()

    check_pairing(PRIMARY, SECONDARY, options)

    with pytest.raises(errors.OptionsAlreadyUsed):
        check_pairing(PRIMARY, SECONDARY, options)


def test_one_host_with_two_ports_is_two_namespaces() -> None:
    check_pairing(LOCAL, FactoryFacts("localhost", 5673), make())


@pytest.mark.parametrize(
    ("primary", "secondary", "error"),
    [
        (
            PRIMARY,
            FactoryFacts("Contoso.ServiceBus.windows.net", 5671),
            errors.SameNamespace,
        ),
        (PRIMARY, FactoryFacts(f"{PRIMARY.host}.", 5671), errors.SameNamespace),
        (LOCAL, FactoryFacts("localhost", 5672), errors.SameNamespace),
        (LOCAL, FactoryFacts("::1", 5672), errors.SameNamespace),
        (FactoryFacts("a", 1, paired=True), SECONDARY, errors.AlreadyPaired),
        (PRIMARY, FactoryFacts("b", 1, paired=True), errors.SecondaryAlreadyPaired),
        (PRIMARY, FactoryFacts("b", 1, is_secondary=True), errors.SecondaryInUse),
    ],
)
def test_an_invalid_pair_is_refused_and_the_options_stay_unused(
    primary: FactoryFacts,
    secondary: FactoryFacts,
    error: type[errors.PairingError],
) -> None:
    options = make()

    with pytest.raises(error) as caught:
        check_pairing(primary, secondary, options)

    assert isinstance(caught.value, errors.PairingError)
    check_pairing(PRIMARY, SECONDARY, options)


def test_a_factory_that_is_a_secondary_may_be_a_primary_too() -> None:
    check_pairing(FactoryFacts("a", 1, is_secondary=True), SECONDARY, make())
