"""Opens and closes in every order, and prints what objects say of themselves."""

from __future__ import annotations

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]


def main() -> None:
    client = ServiceBusClient.from_connection_string(conn_str=CONNECTION)
    # The pair is made here.
    authority = CONNECTION.partition("sb://")[2].partition(";")[0].rstrip("/")
    print(client.fully_qualified_namespace == authority)
    sender = client.get_queue_sender(queue_name="orders", client_identifier="me")
    print(sender.entity_name, sender.client_identifier, sender)
    print(sender.fully_qualified_namespace == authority)
    print(client.get_queue_sender("orders").client_identifier != "me")
    # Without a context, as many programs have it.
    sender.send_messages(ServiceBusMessage("one"))
    with sender:
        sender.send_messages(message=ServiceBusMessage("two"), timeout=20)
    topic = client.get_topic_sender(topic_name="events", socket_timeout=5)
    with client, topic:
        topic.send_messages(ServiceBusMessage("three"))
        with client.get_subscription_receiver("events", "all") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            print(message)
            receiver.complete_message(message)
        with client.get_queue_receiver("orders") as receiver:
            found: list[str] = []
            while len(found) < 2:
                for message in receiver.receive_messages(2, max_wait_time=5):
                    found.append(str(message))
                    receiver.complete_message(message)
            print(found)
    client.close()
    sender.close()
    topic.close()
    try:
        topic.send_messages(ServiceBusMessage("four"))
    except ValueError as error:
        print(type(error).__name__)
    try:
        client.get_queue_sender("orders")
    except ValueError:
        print("a closed client makes no senders")
    else:
        print("a closed client makes senders")
