// Partitioned queues and topics: fragments in several shards behind one entity.
//
// A sequence number is 64 bits: the fragment above 48 bits of the number inside it.

import assert from "node:assert/strict";
import Long from "long";
import {
  all,
  assertNothingComes,
  assertRefused,
  bodies,
  take,
  takeOne,
} from "./bus.mjs";
import { test } from "./cases.mjs";

const SHARDS = 4;
const COUNT = 16;
const PARTED = { enable_partitioning: true };

/** Adds a case in the namespace with several shards; all of its queues and topics. */
function parted(name, wants, body) {
  const settings = Object.fromEntries(
    Object.entries(wants).map(([kind, given]) => [
      kind,
      kind === "queues" ? given : { ...PARTED, ...given },
    ]),
  );
  test(name, { namespace: "parted", ...settings }, body);
}

const fragment = (number) => number.shiftRightUnsigned(48).toNumber();
const fragments = (messages) =>
  new Set(messages.map((message) => fragment(message.sequenceNumber)));
const numbered = (messages) =>
  new Set(messages.map((message) => message.sequenceNumber.toString()));
const names = Array.from({ length: COUNT }, (_, n) => `m${n}`);
const later = () => new Date(Date.now() + 3_600_000);

/** Sends each message alone, so that those without a key take turns. */
async function sendEach(bus, messages, entity = bus.name) {
  const sender = bus.sender(entity);
  await Promise.all(messages.map((message) => sender.sendMessages(message)));
}

const sendNames = (bus) => sendEach(bus, names.map((body) => ({ body })));

/** Asserts that these are the messages with all names, from all fragments. */
function assertSpread(messages) {
  assert.deepEqual(bodies(messages).sort(), [...names].sort());
  assert.equal(fragments(messages).size, SHARDS);
  assert.equal(numbered(messages).size, COUNT);
}

parted("fragments_share_messages_without_a_key", { queue: {} }, async (bus) => {
  await sendNames(bus);
  const receiver = bus.receiver();

  const messages = await take(receiver, COUNT);

  assertSpread(messages);
  await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  assert.deepEqual(await all(receiver), []);
});

parted("a_partition_key_keeps_order_and_fragment", { queue: {} }, async (bus) => {
  const key = (n) => `key ${n % 5}`;
  const sender = bus.sender();
  for (let n = 0; n < COUNT; n += 1) {
    await sender.sendMessages({ body: n, partitionKey: key(n) });
  }

  const messages = await bus.drained(COUNT);

  for (let n = 0; n < 5; n += 1) {
    const ours = messages.filter((message) => message.partitionKey === key(n));
    const sorted = [...bodies(ours)].sort((a, b) => a - b);
    assert.ok(ours.length >= Math.floor(COUNT / 5));
    assert.deepEqual(bodies(ours), sorted);
    assert.equal(fragments(ours).size, 1);
  }
});

parted("a_batch_must_have_one_key", { queue: {} }, async (bus) => {
  const sender = bus.sender();
  const batch = [
    { body: "a", partitionKey: "one" },
    { body: "b", partitionKey: "one" },
  ];
  await sender.sendMessages(batch);

  const other = { body: "c", partitionKey: "two" };
  const refused = sender.sendMessages([...batch, other]);

  const error = await assertRefused(refused, "GeneralError");
  assert.match(error.message, /same session id or partition key/);
  assert.deepEqual(bodies(await bus.left()), ["a", "b"]);
});

parted("peeks_go_on_from_fragment_to_fragment", { queue: {} }, async (bus) => {
  await sendNames(bus);
  const receiver = bus.receiver();

  const seen = [];
  for (let more = await receiver.peekMessages(3); more.length; ) {
    seen.push(...more);
    more = await receiver.peekMessages(3);
  }

  assertSpread(seen);
  const numbers = seen.map((message) => message.sequenceNumber);
  assert.ok(numbers.slice(1).every((number, n) => number.greaterThan(numbers[n])));
  const options = { fromSequenceNumber: Long.fromNumber(2).shiftLeft(48) };
  const rest = await receiver.peekMessages(COUNT, options);
  assert.deepEqual(fragments(rest), new Set([2, 3]));
});

parted("schedules_are_cancelled_in_all_fragments", { queue: {} }, async (bus) => {
  const sender = bus.sender();
  const messages = names.map((body) => ({ body, partitionKey: body }));

  const numbers = await sender.scheduleMessages(messages, later());

  assert.equal(new Set(numbers.map(fragment)).size, SHARDS);
  const waiting = await bus.left();
  assert.deepEqual(new Set(numbers.map(String)), numbered(waiting));
  assert.ok(waiting.every((message) => message.state === "scheduled"));
  await sender.cancelScheduledMessages(numbers);
  assert.deepEqual(await bus.left(), []);
  const again = sender.cancelScheduledMessages(numbers[0]);
  await assertRefused(again, "MessageNotFound");
});

parted("deferred_messages_come_by_their_numbers", { queue: {} }, async (bus) => {
  await sendNames(bus);
  const receiver = bus.receiver();
  const messages = await take(receiver, COUNT);
  await Promise.all(messages.map((message) => receiver.deferMessage(message)));

  const numbers = messages.map((message) => message.sequenceNumber);
  const deferred = await receiver.receiveDeferredMessages(numbers);

  assert.deepEqual(bodies(deferred), bodies(messages));
  const [renewed] = deferred;
  const before = renewed.lockedUntilUtc;
  assert.ok((await receiver.renewMessageLock(renewed)) >= before);
  await Promise.all(deferred.map((message) => receiver.completeMessage(message)));
  assert.deepEqual(await all(receiver), []);
});

parted("dead_letters_come_from_all_fragments", { queue: {} }, async (bus) => {
  await sendNames(bus);
  const receiver = bus.receiver();
  const messages = await take(receiver, COUNT);
  const why = { deadLetterReason: "r" };
  await Promise.all(
    messages.map((message) => receiver.deadLetterMessage(message, why)),
  );

  const dead = await bus.deadLetters(COUNT);

  assertSpread(dead);
  assert.ok(dead.every((message) => message.deadLetterReason === "r"));
});

const SESSIONS = { queue: { requires_session: true } };

parted("sessions_live_in_one_fragment_each", SESSIONS, async (bus) => {
  const ids = Array.from({ length: 6 }, (_, n) => `s${n}`);
  const sender = bus.sender();
  for (const body of [1, 2, 3]) {
    for (const sessionId of ids) await sender.sendMessages({ sessionId, body });
  }

  const open = [await bus.session("s3")];
  while (open.length < ids.length) open.push(await bus.nextSession());

  assert.deepEqual(open.map((receiver) => receiver.sessionId).sort(), ids);
  const seen = new Set();
  for (const receiver of open) {
    const messages = await take(receiver, 3);
    assert.deepEqual(bodies(messages), [1, 2, 3]);
    assert.equal(fragments(messages).size, 1);
    seen.add(...fragments(messages));
    await receiver.setSessionState(receiver.sessionId);
    assert.equal(await receiver.getSessionState(), receiver.sessionId);
    assert.ok((await receiver.renewSessionLock()) > Date.now());
    await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  }
  assert.ok(seen.size > 1);
  await assertNothingComes(open[0]);
});

const ONCE = { queue: { requires_duplicate_detection: true } };

parted("a_duplicate_is_dropped_in_its_fragment", ONCE, async (bus) => {
  const ids = Array.from({ length: 8 }, (_, n) => `id${n}`);
  const messages = ids.map((messageId) => ({ messageId, body: "x" }));
  await sendEach(bus, messages);
  await sendEach(bus, messages);

  const found = await bus.left();

  assert.deepEqual(found.map((message) => message.messageId).sort(), ids);
  assert.ok(fragments(found).size > 1);
});

const FORWARDING = {
  queue: { forward_to: "forwarded-home" },
  queues: { "forwarded-home": {} },
};

parted("forwarding_leaves_no_fragment_out", FORWARDING, async (bus) => {
  await sendNames(bus);

  const messages = await bus.drained(COUNT, {}, "forwarded-home");

  assert.deepEqual(bodies(messages).sort(), [...names].sort());
});

const TOPIC = { topic: { subscriptions: [{ name: "all" }] } };

parted("a_partitioned_topic_has_partitioned_subscriptions", TOPIC, async (bus) => {
  await sendNames(bus);
  const receiver = bus.subscriber("all");

  const messages = await take(receiver, COUNT);

  assertSpread(messages);
  const [first, second, ...others] = messages;
  await receiver.deferMessage(first);
  await receiver.deadLetterMessage(second);
  await Promise.all(others.map((message) => receiver.completeMessage(message)));
  const number = first.sequenceNumber;
  const [deferred] = await receiver.receiveDeferredMessages(number);
  assert.equal(deferred.body, first.body);
  await receiver.completeMessage(deferred);
  const dead = await bus.subscriber("all", { subQueueType: "deadLetter" });
  assert.equal((await takeOne(dead)).body, second.body);
  assert.deepEqual(await all(receiver), []);
});

parted("counts_are_of_all_fragments", { queue: {} }, async (bus) => {
  const { ServiceBusAdministrationClient } = await import("@azure/service-bus");
  const admin = new ServiceBusAdministrationClient(bus.secured());
  await sendNames(bus);
  const receiver = bus.receiver();
  const [dead] = await take(receiver, 1);
  await receiver.deadLetterMessage(dead);
  await bus.sender().scheduleMessages({ body: "later" }, later());

  const counted = await admin.getQueueRuntimeProperties(bus.name);

  assert.equal(counted.activeMessageCount, COUNT - 1);
  assert.equal(counted.deadLetterMessageCount, 1);
  assert.equal(counted.scheduledMessageCount, 1);
  const shown = await admin.getQueue(bus.name);
  assert.equal(shown.enablePartitioning, true);
  assert.equal(shown.maxSizeInMegabytes, 1024 * SHARDS);
});

const WIDE = { namespace: "wide", queue: PARTED };

test("numbers_with_the_most_shards_are_exact", WIDE, async (bus) => {
  const sender = bus.sender();
  const messages = names.map((body) => ({ body, partitionKey: body }));
  const numbers = await sender.scheduleMessages(messages, later());
  assert.ok(numbers.every((number) => Number.isSafeInteger(number.toNumber())));
  await sender.cancelScheduledMessages(numbers);
  await sendEach(bus, messages);
  const receiver = bus.receiver();
  const found = await take(receiver, COUNT);
  await Promise.all(found.map((message) => receiver.deferMessage(message)));

  assert.deepEqual(numbered(await all(receiver)), numbered(found));
  const given = found.map((message) => message.sequenceNumber);
  const deferred = await receiver.receiveDeferredMessages(given);
  assert.deepEqual(bodies(deferred), bodies(found));
});
