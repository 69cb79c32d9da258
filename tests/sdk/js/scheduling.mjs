// Scheduling: messages that are to arrive later, or no longer.

import assert from "node:assert/strict";
import { assertNothingComes, assertRefused, bodies, takeOne } from "./bus.mjs";
import { test } from "./cases.mjs";

const soon = () => new Date(Date.now() + 1_500);
const later = () => new Date(Date.now() + 3_600_000);

test("a_scheduled_message_arrives_at_its_time", { queue: {} }, async (bus) => {
  const at = soon();

  const [number] = await bus.sender().scheduleMessages({ body: "soon" }, at);

  const [waiting] = await bus.left();
  assert.equal(waiting.state, "scheduled");
  assert.equal(waiting.sequenceNumber.toNumber(), number.toNumber());
  assert.equal(waiting.scheduledEnqueueTimeUtc.getTime(), at.getTime());
  const message = await takeOne(bus.receiver());
  assert.ok(Date.now() >= at);
  assert.equal(message.body, "soon");
  // As in Azure: it says how it came.
  assert.equal(message.state, "scheduled");
  assert.ok(message.enqueuedTimeUtc >= at);
  assert.ok(message.sequenceNumber.greaterThan(number));
});

test("several_messages_are_scheduled_at_once", { queue: {} }, async (bus) => {
  const messages = [{ body: "a" }, { body: "b" }, { body: "c" }];

  const numbers = await bus.sender().scheduleMessages(messages, soon());

  assert.deepEqual(
    numbers.map((number) => number.toNumber()),
    [1, 2, 3],
  );
  assert.deepEqual(bodies(await bus.drained(3)), ["a", "b", "c"]);
});

test("a_sent_message_may_carry_its_time", { queue: {} }, async (bus) => {
  const at = soon();
  await bus.send({ body: "soon", scheduledEnqueueTimeUtc: at }, "now");
  const receiver = bus.receiver();

  const first = await takeOne(receiver);
  const second = await takeOne(receiver);

  assert.deepEqual(bodies([first, second]), ["now", "soon"]);
  assert.ok(Date.now() >= at);
});

test("a_cancelled_message_never_arrives", { queue: {} }, async (bus) => {
  const sender = bus.sender();
  const messages = [{ body: "a" }, { body: "b" }, { body: "c" }];
  const [first, , third] = await sender.scheduleMessages(messages, later());

  await sender.cancelScheduledMessages([first, third]);

  assert.deepEqual(bodies(await bus.left()), ["b"]);
});

test("an_unknown_message_cannot_be_cancelled", { queue: {} }, async (bus) => {
  const sender = bus.sender();
  const [number] = await sender.scheduleMessages({ body: "x" }, later());
  await sender.cancelScheduledMessages(number);

  await assertRefused(sender.cancelScheduledMessages(number), "MessageNotFound");
});

const TOPIC = { subscriptions: [{ name: "all" }] };

test("a_topic_publishes_at_the_scheduled_time", { topic: TOPIC }, async (bus) => {
  const at = soon();
  const sender = bus.sender();
  await sender.scheduleMessages({ body: "soon" }, at);

  const receiver = bus.subscriber("all");
  assert.equal((await takeOne(receiver)).body, "soon");
  assert.ok(Date.now() >= at);
  await assertNothingComes(receiver);
});

test("a_topic_forgets_what_is_cancelled", { topic: TOPIC }, async (bus) => {
  const sender = bus.sender();
  const [number] = await sender.scheduleMessages({ body: "never" }, later());

  await sender.cancelScheduledMessages(number);

  await assertRefused(sender.cancelScheduledMessages(number), "MessageNotFound");
});

const SESSIONS = { requires_session: true };

test("a_session_message_may_be_scheduled", { queue: SESSIONS }, async (bus) => {
  await bus.sender().scheduleMessages({ body: "soon", sessionId: "s" }, soon());

  const receiver = await bus.nextSession();

  assert.equal(receiver.sessionId, "s");
  assert.equal((await takeOne(receiver)).body, "soon");
});

test("a_session_is_needed_when_scheduling_too", { queue: SESSIONS }, async (bus) => {
  const scheduled = bus.sender().scheduleMessages({ body: "x" }, later());

  await assertRefused(scheduled, "GeneralError");
  assert.deepEqual(await bus.left(), []);
});

test("a_large_message_is_not_scheduled", { queue: {} }, async (bus) => {
  const body = Buffer.alloc(300_000);

  const scheduled = bus.sender().scheduleMessages([{ body: "x" }, { body }], later());

  await assertRefused(scheduled, "MessageSizeExceeded");
  assert.deepEqual(await bus.left(), []);
});
