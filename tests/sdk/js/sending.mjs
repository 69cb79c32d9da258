// Sending: one message, several, batches, and what is accepted but not stored.

import assert from "node:assert/strict";
import { ARRIVES_MS, assertNothingComes, bodies, take, takeOne } from "./bus.mjs";
import { test } from "./cases.mjs";

test("a_message_arrives", { queue: {} }, async (bus) => {
  await bus.sender().sendMessages({ body: "hello" });

  const message = await takeOne(bus.receiver());

  assert.equal(message.body, "hello");
  assert.equal(message.sequenceNumber.toNumber(), 1);
  // Only a forwarded message has another number at its first entity.
  assert.equal(message.enqueuedSequenceNumber, undefined);
  assert.equal(message.deliveryCount, 0);
  assert.equal(message.state, "active");
  assert.match(message.lockToken, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  assert.ok(Math.abs(message.enqueuedTimeUtc - Date.now()) < 30_000);
  assert.ok(message.lockedUntilUtc > message.enqueuedTimeUtc);
});

test("an_array_is_sent_as_one_batch_in_order", { queue: {} }, async (bus) => {
  await bus.sender().sendMessages([{ body: "a" }, { body: "b" }, { body: "c" }]);

  const messages = await bus.drained(3);

  assert.deepEqual(bodies(messages), ["a", "b", "c"]);
  const numbers = messages.map((message) => message.sequenceNumber.toNumber());
  assert.deepEqual(numbers, [1, 2, 3]);
});

test("a_batch_is_filled_to_the_brim", { queue: {} }, async (bus) => {
  const sender = bus.sender();
  const batch = await sender.createMessageBatch();
  while (batch.tryAddMessage({ body: Buffer.alloc(9_000, batch.count) }));
  assert.equal(batch.maxSizeInBytes, 256 * 1024);
  assert.ok(batch.count > 20);

  await sender.sendMessages(batch);

  const messages = await bus.drained(batch.count, { skipParsingBodyAsJson: true });
  const first = messages.map((message) => message.body[0]);
  assert.deepEqual(first, [...Array(batch.count).keys()]);
});

test("a_batch_keeps_to_the_size_that_the_caller_gives", { queue: {} }, async (bus) => {
  const sender = bus.sender();
  const batch = await sender.createMessageBatch({ maxSizeInBytes: 1_000 });
  while (batch.tryAddMessage({ body: "x".repeat(100) }));
  assert.ok(batch.sizeInBytes <= 1_000);

  await sender.sendMessages(batch);

  assert.equal((await bus.drained(batch.count)).length, batch.count);
});

test("a_batch_keeps_properties_of_each_message", { queue: {} }, async (bus) => {
  await bus.send(
    { body: 1, messageId: "m1", applicationProperties: { n: 1 } },
    { body: 2, messageId: "m2", applicationProperties: { n: 2 }, subject: "s" },
  );

  const [first, second] = await bus.drained(2);

  assert.equal(first.messageId, "m1");
  assert.deepEqual(first.applicationProperties, { n: 1 });
  assert.equal(first.subject, undefined);
  assert.equal(second.messageId, "m2");
  assert.deepEqual(second.applicationProperties, { n: 2 });
  assert.equal(second.subject, "s");
});

test("many_sends_at_once_are_all_stored", { queue: {} }, async (bus) => {
  const sender = bus.sender();
  const numbers = [...Array(1_500).keys()];

  await Promise.all(numbers.map((body) => sender.sendMessages({ body })));

  // The client returns at once when all have come, and else after all of its wait.
  const started = Date.now();
  const receiver = bus.receiver({ receiveMode: "receiveAndDelete" });
  const options = { maxWaitTimeInMs: ARRIVES_MS };
  const messages = await receiver.receiveMessages(numbers.length, options);
  assert.deepEqual(bodies(messages), numbers);
  assert.ok(Date.now() - started < ARRIVES_MS / 2);
});

test("a_message_of_1_kib_is_settled", { queue: {} }, async (bus) => {
  await bus.sender().sendMessages({ body: Buffer.alloc(1_024, "x") });

  const receiver = bus.receiver({ skipParsingBodyAsJson: true });
  await receiver.completeMessage(await takeOne(receiver));
});

test("a_message_of_200_kb_arrives_whole", { queue: {} }, async (bus) => {
  const body = Buffer.alloc(200_000);
  for (let i = 0; i < body.length; i += 1) body[i] = (i * 7 + (i >> 8)) & 0xff;
  await bus.sender().sendMessages({ body });

  const message = await takeOne(bus.receiver({ skipParsingBodyAsJson: true }));

  assert.ok(body.equals(message.body));
});

const LARGE = { max_message_size_in_kilobytes: 2048 };

test("a_queue_may_take_larger_messages", { queue: LARGE }, async (bus) => {
  const sender = bus.sender();
  const body = Buffer.alloc(1_500_000, "large ");
  assert.equal((await sender.createMessageBatch()).maxSizeInBytes, 2048 * 1024);

  await sender.sendMessages({ body });

  const message = await takeOne(bus.receiver({ skipParsingBodyAsJson: true }));
  assert.ok(body.equals(message.body));
});

test("a_ping_is_accepted_and_never_delivered", { queue: {} }, async (bus) => {
  const sender = bus.sender();
  const contentType = "application/vnd.ms-servicebus-ping";
  await sender.sendMessages({ body: "ping", contentType });
  await sender.sendMessages([
    { body: "ping", contentType },
    { body: "message" },
    { body: "ping", contentType },
  ]);

  const receiver = bus.receiver();
  assert.equal((await takeOne(receiver)).body, "message");
  await assertNothingComes(receiver);
  assert.deepEqual(bodies(await bus.left()), ["message"]);
});

const BOTH = {
  queues: { "sending-first": {}, "sending-second": {} },
};

test("several_links_share_one_connection", BOTH, async (bus) => {
  const queues = ["sending-first", "sending-second"];
  const senders = queues.map((queue) => bus.sender(queue));
  const receivers = queues.map((queue) => bus.receiver({}, queue));
  const again = bus.receiver({}, queues[0]);

  const waiting = receivers.map((receiver) => take(receiver, 1));
  await Promise.all(senders.map((sender, n) => sender.sendMessages({ body: n })));
  const received = (await Promise.all(waiting)).flat();
  for (const [n, message] of received.entries()) {
    await receivers[n].completeMessage(message);
  }
  await senders[0].close();
  await receivers[0].close();

  assert.deepEqual(bodies(received), [0, 1]);
  await senders[1].sendMessages({ body: "still" });
  assert.equal((await takeOne(receivers[1])).body, "still");
  await assertNothingComes(again);
});

const NAMED = { queues: { "team/orders/New": {} } };

test("names_have_slashes_and_no_case", NAMED, async (bus) => {
  await bus.sendTo("Team/Orders/NEW", "x");

  const [message] = await bus.drained(1, {}, "team/orders/new");

  assert.equal(message.body, "x");
  assert.deepEqual(await bus.left({}, "TEAM/orders/New"), []);
});
