// Lifetimes: expiry, duplicates, forwarding, and the queues below a queue.

import assert from "node:assert/strict";
import {
  assertNothingComes,
  assertNothingComesUntil,
  bodies,
  takeOne,
} from "./bus.mjs";
import { test } from "./cases.mjs";

const DEAD = { dead_lettering_on_message_expiration: true };

test("an_expired_message_is_dead_lettered", { queue: DEAD }, async (bus) => {
  await bus.send({ body: "short", timeToLive: 1_000 }, "long");

  const [dead] = await bus.deadLetters(1);

  assert.equal(dead.body, "short");
  assert.equal(dead.deadLetterReason, "TTLExpiredException");
  assert.deepEqual(bodies(await bus.drained(1)), ["long"]);
});

// Long enough to be seen by a slow client first.
const QUICK = { queue: { default_message_time_to_live: "PT3S" } };

test("an_expired_message_is_gone", QUICK, async (bus) => {
  // The queue's own three seconds are the smaller time.
  await bus.send({ body: "gone", timeToLive: 3_600_000 });
  const [seen] = await bus.left();
  assert.equal(seen.expiresAtUtc - seen.enqueuedTimeUtc, 3_000);

  const dead = bus.receiver({ subQueueType: "deadLetter" });
  await assertNothingComesUntil(dead, seen.expiresAtUtc.getTime() + 100);

  assert.deepEqual(await bus.left(), []);
  await assertNothingComes(bus.receiver());
});

test("a_locked_message_outlives_its_time", { queue: DEAD }, async (bus) => {
  const timeToLive = 1_500;
  await bus.send({ body: "held", timeToLive }, { body: "free", timeToLive });
  const receiver = bus.receiver();
  const message = await takeOne(receiver);

  assert.deepEqual(bodies(await bus.deadLetters(1)), ["free"]);

  await receiver.completeMessage(message);
  assert.deepEqual(await bus.left(), []);
  assert.deepEqual(await bus.left({ subQueueType: "deadLetter" }), []);
});

const DISTINCT = {
  requires_duplicate_detection: true,
  duplicate_detection_history_time_window: "PT1M",
};

test("a_duplicate_is_accepted_and_dropped", { queue: DISTINCT }, async (bus) => {
  const sender = bus.sender();
  await sender.sendMessages({ body: "first", messageId: "id" });
  await sender.sendMessages({ body: "second", messageId: "id" });
  await sender.sendMessages([
    { body: "other", messageId: "other" },
    { body: "third", messageId: "id" },
    { body: "again", messageId: "other" },
  ]);

  const messages = await bus.drained(2);
  await sender.sendMessages({ body: "after", messageId: "id" });

  assert.deepEqual(bodies(messages), ["first", "other"]);
  assert.deepEqual(await bus.left(), []);
});

const CHAIN = {
  queues: {
    "forward-source": { forward_to: "forward-middle" },
    "forward-middle": { forward_to: "forward-target" },
    "forward-target": {},
  },
};

test("messages_are_forwarded_along_a_chain", CHAIN, async (bus) => {
  await bus.sendTo("forward-source", { body: "a", messageId: "id" }, "b");

  const messages = await bus.drained(2, {}, "forward-target");

  assert.deepEqual(bodies(messages), ["a", "b"]);
  assert.equal(messages[0].messageId, "id");
  assert.deepEqual(await bus.left({}, "forward-source"), []);
});

const DEAD_CHAIN = {
  queue: { forward_dead_lettered_messages_to: "forward-dead" },
  queues: { "forward-dead": {} },
};

test("dead_letters_are_forwarded", DEAD_CHAIN, async (bus) => {
  await bus.send("bad");
  const receiver = bus.receiver();
  const reason = { deadLetterReason: "why", deadLetterErrorDescription: "what" };
  await receiver.deadLetterMessage(await takeOne(receiver), reason);

  const [message] = await bus.drained(1, {}, "forward-dead");

  assert.equal(message.body, "bad");
  assert.equal(message.deadLetterReason, "why");
  assert.equal(message.deadLetterSource, bus.name);
});

const HOPS = {
  queues: Object.fromEntries(
    [1, 2, 3, 4, 5, 6, 7].map((n) => [
      `hop-${n}`,
      n < 7 ? { forward_to: `hop-${n + 1}` } : {},
    ]),
  ),
};

test("too_many_hops_end_in_a_transfer_dead_letter_queue", HOPS, async (bus) => {
  await bus.sendTo("hop-1", "far");

  const queues = Object.keys(HOPS.queues);
  const options = { subQueueType: "transferDeadLetter" };
  const found = [];
  for (const queue of queues) {
    for (const { body } of await bus.left(options, queue)) found.push([queue, body]);
  }

  assert.deepEqual(
    found.map(([, body]) => body),
    ["far"],
  );
  const [message] = await bus.drained(1, options, found[0][0]);
  assert.equal(message.deadLetterReason, "MaxTransferHopCountExceeded");
  assert.deepEqual(await bus.left({}, "hop-7"), []);
});
