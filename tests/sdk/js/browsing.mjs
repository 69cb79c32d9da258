// Browsing: messages are shown in every state, and none is taken.

import assert from "node:assert/strict";
import { bodies, take, takeOne } from "./bus.mjs";
import { test } from "./cases.mjs";

const LATER_MS = 3_600_000;

test("browsing_takes_nothing", { queue: {} }, async (bus) => {
  await bus.send("a", "b");
  const receiver = bus.receiver();

  const [first] = await receiver.peekMessages(1);

  assert.equal(first.body, "a");
  assert.equal(first.lockToken, undefined);
  assert.equal(first.deliveryCount, 0);
  assert.deepEqual(bodies(await take(receiver, 2)), ["a", "b"]);
});

test("browsing_an_empty_queue_shows_nothing", { queue: {} }, async (bus) => {
  assert.deepEqual(await bus.left(), []);
});

test("browsing_goes_on_where_it_stopped", { queue: {} }, async (bus) => {
  await bus.send("a", "b", "c");
  const receiver = bus.receiver();

  const parts = [];
  for (let n = 0; n < 3; n += 1) parts.push(bodies(await receiver.peekMessages(2)));

  assert.deepEqual(parts, [["a", "b"], ["c"], []]);
});

test("browsing_starts_at_a_sequence_number", { queue: {} }, async (bus) => {
  await bus.send("a", "b", "c", "d");
  const receiver = bus.receiver();
  const [first] = await receiver.peekMessages(1);

  const options = { fromSequenceNumber: first.sequenceNumber.add(2) };
  const messages = await receiver.peekMessages(10, options);

  assert.deepEqual(bodies(messages), ["c", "d"]);
});

test("browsing_shows_every_state", { queue: {} }, async (bus) => {
  await bus.send("deferred", "locked", "active");
  const receiver = bus.receiver();
  await receiver.deferMessage(await takeOne(receiver));
  await takeOne(receiver);
  const at = new Date(Date.now() + LATER_MS);
  await bus.sender().scheduleMessages({ body: "scheduled" }, at);

  const messages = await bus.left();

  const states = messages.map((message) => [message.body, message.state]);
  assert.deepEqual(states, [
    ["deferred", "deferred"],
    ["locked", "active"],
    ["active", "active"],
    ["scheduled", "scheduled"],
  ]);
});

test("browsing_shows_dead_letters", { queue: {} }, async (bus) => {
  await bus.send("dead", "alive");
  const receiver = bus.receiver();
  await receiver.deadLetterMessage(await takeOne(receiver));

  const dead = await bus.left({ subQueueType: "deadLetter" });

  assert.deepEqual(bodies(dead), ["dead"]);
  assert.deepEqual(bodies(await bus.left()), ["alive"]);
});

test("browsing_shows_large_messages", { queue: {} }, async (bus) => {
  const sender = bus.sender();
  const body = "x".repeat(150_000);
  for (let n = 0; n < 3; n += 1) await sender.sendMessages({ body });

  const seen = [];
  const receiver = bus.receiver();
  while (seen.length < 3) {
    const more = await receiver.peekMessages(3);
    assert.ok(more.length > 0);
    seen.push(...more);
  }

  for (const message of seen) assert.equal(message.body, body);
});

test("browsing_may_leave_bodies_out", { queue: {} }, async (bus) => {
  await bus.send({ body: "x".repeat(1_000), messageId: "id" });

  const options = { omitMessageBody: true };
  const [message] = await bus.receiver().peekMessages(1, options);

  assert.equal(message.messageId, "id");
  assert.equal(message.body, undefined);
});
