"""Schedules messages, looks at them, and takes some of them back."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]


def main() -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    client = ServiceBusClient.from_connection_string(CONNECTION, retry_total=0)
    # The pair is made here.
    with (
        client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders", max_wait_time=5) as receiver,
    ):
        one = sender.schedule_messages(ServiceBusMessage("one"), later)
        two = sender.schedule_messages(
            [ServiceBusMessage("two"), ServiceBusMessage("three")], later
        )
        print(len(one), len(two), all(type(n) is int for n in one + two))
        print(sender.schedule_messages([], later))
        # Without a zone, as many programs have it.
        naive = sender.schedule_messages({"body": "four"}, later.replace(tzinfo=None))
        peeked = receiver.peek_messages(max_message_count=10)
        # The exact time passes through a few clocks, but not through minutes.
        print(sorted(str(m) for m in peeked))
        print(
            {round_minute(m.scheduled_enqueue_time_utc) for m in peeked}
            == {round_minute(later)}
        )
        print({m.sequence_number for m in peeked} == {*one, *two, *naive})
        sender.cancel_scheduled_messages(one[0])
        sender.cancel_scheduled_messages(two)
        sender.cancel_scheduled_messages([])
        print([str(m) for m in receiver.peek_messages(10, sequence_number=1)])
        try:
            sender.cancel_scheduled_messages(one)
        except ServiceBusError as error:
            print("cancelled twice:", type(error).__name__)
        sender.cancel_scheduled_messages(naive, timeout=10)
        now = datetime.now(UTC)
        sender.schedule_messages(ServiceBusMessage("now"), now)
        message = next(receiver)
        print(message)
        receiver.complete_message(message)
        sender.send_messages(ServiceBusMessage("due", scheduled_enqueue_time_utc=now))
        message = next(receiver)
        print(message)
        receiver.complete_message(message)


def round_minute(moment: datetime | None) -> datetime:
    assert moment is not None
    return (moment + timedelta(seconds=30)).replace(second=0, microsecond=0)
