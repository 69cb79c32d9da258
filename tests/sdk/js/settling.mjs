// Settling: complete, abandon, defer, dead-letter; locks and their ends.

import assert from "node:assert/strict";
import {
  assertNothingComes,
  assertNothingComesUntil,
  assertRefused,
  bodies,
  take,
  takeOne,
} from "./bus.mjs";
import { test } from "./cases.mjs";

// The shortest lock that there is.
const SHORT = { lock_duration: "PT5S" };

test("an_abandoned_message_comes_back", { queue: {} }, async (bus) => {
  await bus.send({ body: "a", applicationProperties: { kept: 1, changed: 1 } }, "b");
  const receiver = bus.receiver();

  await receiver.abandonMessage(await takeOne(receiver), { changed: 2, added: "x" });

  const [again, next] = await take(receiver, 2);
  assert.equal(again.body, "a");
  assert.equal(again.deliveryCount, 1);
  assert.equal(again.sequenceNumber.toNumber(), 1);
  assert.deepEqual(again.applicationProperties, { kept: 1, changed: 2, added: "x" });
  assert.equal(next.body, "b");
  assert.equal(next.deliveryCount, 0);
});

test("a_deferred_message_comes_by_its_number_alone", { queue: {} }, async (bus) => {
  await bus.send({ body: "later", applicationProperties: { a: 1 } });
  const receiver = bus.receiver();
  const message = await takeOne(receiver);

  await receiver.deferMessage(message, { why: "not yet" });

  await assertNothingComes(receiver);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(deferred.body, "later");
  assert.equal(deferred.state, "deferred");
  assert.deepEqual(deferred.applicationProperties, { a: 1, why: "not yet" });
  assert.notEqual(deferred.lockToken, message.lockToken);
  assert.ok((await receiver.renewMessageLock(deferred)) > Date.now());
  await receiver.completeMessage(deferred);
  assert.deepEqual(await bus.left(), []);
});

test("deferred_messages_settle_in_every_way", { queue: {} }, async (bus) => {
  await bus.send("complete", "abandon", "defer", "dead-letter");
  const receiver = bus.receiver();
  const messages = await take(receiver, 4);
  for (const message of messages) await receiver.deferMessage(message);
  const numbers = messages.map((message) => message.sequenceNumber);

  const deferred = await receiver.receiveDeferredMessages(numbers);
  assert.deepEqual(bodies(deferred), ["complete", "abandon", "defer", "dead-letter"]);
  await receiver.completeMessage(deferred[0]);
  await receiver.abandonMessage(deferred[1], { abandoned: true });
  await receiver.deferMessage(deferred[2], { deferred: true });
  await receiver.deadLetterMessage(deferred[3], {
    deadLetterReason: "reason",
    deadLetterErrorDescription: "description",
    added: 1,
  });

  const [dead] = await bus.deadLetters(1);
  assert.equal(dead.body, "dead-letter");
  assert.equal(dead.deadLetterReason, "reason");
  assert.equal(dead.deadLetterErrorDescription, "description");
  assert.equal(dead.applicationProperties.added, 1);
  const left = await bus.left();
  assert.deepEqual(bodies(left), ["abandon", "defer"]);
  assert.equal(left[0].applicationProperties.abandoned, true);
  assert.equal(left[1].applicationProperties.deferred, true);
  assert.equal(left[1].state, "deferred");
});

test("deferred_messages_may_be_received_and_deleted", { queue: {} }, async (bus) => {
  await bus.send("later");
  const receiver = bus.receiver();
  const message = await takeOne(receiver);
  await receiver.deferMessage(message);

  const deleting = bus.receiver({ receiveMode: "receiveAndDelete" });
  const deferred = await deleting.receiveDeferredMessages([message.sequenceNumber]);

  assert.deepEqual(bodies(deferred), ["later"]);
  assert.deepEqual(await bus.left(), []);
});

test("an_unknown_deferred_message_is_not_found", { queue: {} }, async (bus) => {
  await bus.send("not deferred");
  const receiver = bus.receiver();
  const { sequenceNumber } = await takeOne(receiver);

  for (const number of [sequenceNumber, sequenceNumber.add(41)]) {
    const asked = receiver.receiveDeferredMessages(number);
    await assertRefused(asked, "MessageNotFound");
  }
});

test("a_message_is_dead_lettered_with_its_reason", { queue: {} }, async (bus) => {
  await bus.send({ body: "bad", applicationProperties: { kept: 1 } });
  const receiver = bus.receiver();

  await receiver.deadLetterMessage(await takeOne(receiver), {
    deadLetterReason: "reason",
    deadLetterErrorDescription: "description",
    added: "x",
  });

  await assertNothingComes(receiver);
  const dead = bus.receiver({ subQueueType: "deadLetter" });
  const message = await takeOne(dead);
  assert.equal(message.body, "bad");
  assert.equal(message.deadLetterReason, "reason");
  assert.equal(message.deadLetterErrorDescription, "description");
  assert.equal(message.applicationProperties.kept, 1);
  assert.equal(message.applicationProperties.added, "x");
  await dead.completeMessage(message);
  assert.deepEqual(await bus.left({ subQueueType: "deadLetter" }), []);
});

test("a_dead_letter_needs_no_reason", { queue: {} }, async (bus) => {
  await bus.send("bad");
  const receiver = bus.receiver();

  await receiver.deadLetterMessage(await takeOne(receiver));

  const [message] = await bus.deadLetters(1);
  assert.equal(message.body, "bad");
  assert.equal(message.deadLetterReason, undefined);
});

test("dead_letters_settle_like_others", { queue: {} }, async (bus) => {
  await bus.send("defer", "abandon");
  const receiver = bus.receiver();
  for (const message of await take(receiver, 2)) {
    await receiver.deadLetterMessage(message);
  }
  const dead = bus.receiver({ subQueueType: "deadLetter" });

  const [first, second] = await take(dead, 2);
  await dead.deferMessage(first);
  await dead.abandonMessage(second);

  assert.equal((await takeOne(dead)).body, "abandon");
  const [deferred] = await dead.receiveDeferredMessages(first.sequenceNumber);
  assert.equal(deferred.body, "defer");
  await dead.completeMessage(deferred);
});

const THREE = { max_delivery_count: 3 };

test("too_many_deliveries_end_in_the_dead_letters", { queue: THREE }, async (bus) => {
  await bus.send("poison");
  const receiver = bus.receiver();
  const counts = [];

  for (let n = 0; n < 3; n += 1) {
    const message = await takeOne(receiver);
    counts.push(message.deliveryCount);
    await receiver.abandonMessage(message);
  }

  assert.deepEqual(counts, [0, 1, 2]);
  const [dead] = await bus.deadLetters(1);
  assert.equal(dead.body, "poison");
  assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  await assertNothingComes(receiver);
});

test("a_lock_ends_and_the_message_comes_back", { queue: SHORT }, async (bus) => {
  await bus.send("slow");
  const slow = bus.receiver();
  const message = await takeOne(slow);

  const other = bus.receiver();
  const again = await takeOne(other);

  assert.ok(Date.now() >= message.lockedUntilUtc - 100);
  assert.equal(again.deliveryCount, 1);
  await assertRefused(slow.completeMessage(message), "MessageLockLost");
  await assertRefused(slow.renewMessageLock(message), "MessageLockLost");
  await other.completeMessage(again);
  assert.deepEqual(await bus.left(), []);
});

test("late_settlements_are_refused_in_every_way", { queue: SHORT }, async (bus) => {
  await bus.send("a", "b", "c");
  const slow = bus.receiver();
  const messages = await take(slow, 3);
  const other = bus.receiver();
  const again = await take(other, 3);

  await assertRefused(slow.abandonMessage(messages[0]), "MessageLockLost");
  await assertRefused(slow.deferMessage(messages[1]), "MessageLockLost");
  await assertRefused(slow.deadLetterMessage(messages[2]), "MessageLockLost");

  for (const message of again) await other.completeMessage(message);
});

test("a_renewed_lock_lasts_longer", { queue: SHORT }, async (bus) => {
  await bus.send("long work");
  const receiver = bus.receiver();
  const message = await takeOne(receiver);
  const other = bus.receiver();
  const first = message.lockedUntilUtc.getTime();
  await assertNothingComesUntil(other, first - 2_500);

  const until = await receiver.renewMessageLock(message);

  assert.ok(until.getTime() > first + 1_000, `${until} after ${first}`);
  assert.equal(message.lockedUntilUtc.getTime(), until.getTime());
  await assertNothingComesUntil(other, first + 500);
  await receiver.completeMessage(message);
});

test("the_client_renews_locks_by_itself", { queue: SHORT }, async (bus) => {
  await bus.send("long work");
  const receiver = bus.receiver({ maxAutoLockRenewalDurationInMs: 60_000 });
  const message = await takeOne(receiver);
  const first = message.lockedUntilUtc.getTime();

  await assertNothingComesUntil(bus.receiver(), first + 1_500);

  await receiver.completeMessage(message);
  assert.deepEqual(await bus.left(), []);
});

test("a_message_may_be_settled_after_its_link_closed", { queue: {} }, async (bus) => {
  await bus.send("complete", "abandon");
  const closed = bus.receiver();
  const [first, second] = await take(closed, 2);
  await closed.close();
  const receiver = bus.receiver();

  // The client sends these through the management link, with the lock token.
  await receiver.completeMessage(first);
  await receiver.abandonMessage(second, { added: 1 });

  const again = await takeOne(receiver);
  assert.equal(again.body, "abandon");
  assert.equal(again.deliveryCount, 1);
  assert.equal(again.applicationProperties.added, 1);
  assert.deepEqual(bodies(await bus.left()), ["abandon"]);
});

test("a_message_is_not_settled_twice", { queue: {} }, async (bus) => {
  await bus.send("once", "twice");
  const first = bus.receiver();
  const [message] = await take(first, 1);
  await first.completeMessage(message);

  // The client itself knows of the first settlement, so forget it to ask the server.
  const copy = Object.create(message, { delivery: { value: {} } });

  await assertRefused(first.completeMessage(copy), "MessageLockLost");
  assert.deepEqual(bodies(await bus.left()), ["twice"]);
});

test("locks_survive_the_connection", { queue: SHORT }, async (bus) => {
  await bus.send("held");
  const client = bus.connect(bus.server.connection_string);
  const options = { maxAutoLockRenewalDurationInMs: 0 };
  const message = await takeOne(client.createReceiver(bus.name, options));
  await client.close();

  const receiver = bus.receiver();
  await assertNothingComes(receiver);
  const again = await takeOne(receiver);

  assert.ok(Date.now() >= message.lockedUntilUtc - 100);
  assert.equal(again.deliveryCount, 1);
});
