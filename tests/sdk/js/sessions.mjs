// Sessions: one holder, first in first out, state, locks.

import assert from "node:assert/strict";
import {
  ARRIVES_MS,
  assertNothingComes,
  assertNothingComesUntil,
  assertRefused,
  bodies,
  condition,
  take,
  takeOne,
} from "./bus.mjs";
import { test } from "./cases.mjs";

const SESSIONS = { queue: { requires_session: true } };
const SHORT = { queue: { requires_session: true, lock_duration: "PT5S" } };

const message = (sessionId, body) => ({ sessionId, body });

test("a_session_gets_its_own_messages_in_order", SESSIONS, async (bus) => {
  await bus.send(message("a", 1), message("b", 2), message("a", 3), message("a", 4));

  const receiver = await bus.session("a");
  const messages = await take(receiver, 3);

  assert.equal(receiver.sessionId, "a");
  assert.ok(receiver.sessionLockedUntilUtc > Date.now());
  assert.deepEqual(bodies(messages), [1, 3, 4]);
  assert.equal(messages[0].sessionId, "a");
  await assertNothingComes(receiver);
  for (const each of messages) await receiver.completeMessage(each);
  assert.deepEqual(bodies(await bus.left()), [2]);
});

test("a_session_keeps_its_order_when_a_message_comes_back", SESSIONS, async (bus) => {
  await bus.send(message("s", 1), message("s", 2), message("s", 3));
  const receiver = await bus.session("s");

  await receiver.abandonMessage(await takeOne(receiver));

  const messages = await take(receiver, 3);
  assert.deepEqual(bodies(messages), [1, 2, 3]);
  assert.equal(messages[0].deliveryCount, 1);
});

test("a_session_has_one_holder", SESSIONS, async (bus) => {
  const receiver = await bus.session("s");

  await assertRefused(bus.session("s"), "SessionCannotBeLocked");

  await receiver.close();
  const next = await bus.session("s");
  assert.equal(next.sessionId, "s");
});

test("the_next_session_has_messages_and_no_holder", SESSIONS, async (bus) => {
  await bus.send(message("a", 1), message("b", 2));

  const first = await bus.nextSession();
  const second = await bus.nextSession();

  assert.deepEqual([first.sessionId, second.sessionId].sort(), ["a", "b"]);
  assert.equal((await takeOne(first)).sessionId, first.sessionId);
  assert.equal((await takeOne(second)).sessionId, second.sessionId);
});

test("the_next_session_is_waited_for", SESSIONS, async (bus) => {
  const waiting = bus.nextSession();
  await bus.left();

  await bus.send(message("late", 1));

  const receiver = await waiting;
  assert.equal(receiver.sessionId, "late");
  assert.equal((await takeOne(receiver)).body, 1);
});

test("the_next_session_may_not_come", SESSIONS, async (bus) => {
  const retryOptions = { timeoutInMs: 1_000 };
  const client = bus.connect(bus.server.connection_string, { retryOptions });
  const started = Date.now();

  await assertRefused(client.acceptNextSession(bus.name), "ServiceTimeout");

  const waited = Date.now() - started;
  assert.ok(waited >= 800 && waited < ARRIVES_MS / 2, `${waited} ms`);
  await bus.send(message("s", 1));
  assert.equal((await client.acceptNextSession(bus.name)).sessionId, "s");
});

test("a_wait_for_a_session_ends_with_its_connection", SESSIONS, async (bus) => {
  const client = bus.connect(bus.server.connection_string);
  // The client never answers a wait that its own end has cut off.
  client.acceptNextSession(bus.name).catch(() => {});
  await client.createReceiver(bus.name).peekMessages(1);
  await client.close();

  await bus.send(message("s", 1));

  const receiver = await bus.nextSession();
  assert.equal((await takeOne(receiver)).body, 1);
});

test("session_state_is_kept", SESSIONS, async (bus) => {
  const first = await bus.session("s");
  assert.equal(await first.getSessionState(), null);

  await first.setSessionState({ step: 3, text: "ä" });

  assert.deepEqual(await first.getSessionState(), { step: 3, text: "ä" });
  await first.close();
  const second = await bus.session("s");
  assert.deepEqual(await second.getSessionState(), { step: 3, text: "ä" });
  await second.setSessionState(null);
  assert.equal(await second.getSessionState(), null);
  const other = await bus.session("other");
  assert.equal(await other.getSessionState(), null);
});

test("a_session_lock_is_renewed", SHORT, async (bus) => {
  const receiver = await bus.session("s");
  const first = receiver.sessionLockedUntilUtc.getTime();
  await assertNothingComesUntil(receiver, first - 2_500);

  const until = await receiver.renewSessionLock();

  assert.ok(until.getTime() > first + 1_000);
  assert.equal(receiver.sessionLockedUntilUtc.getTime(), until.getTime());
  await assertNothingComesUntil(receiver, first + 500);
  await assertRefused(bus.session("s"), "SessionCannotBeLocked");
});

test("the_client_renews_session_locks_by_itself", SHORT, async (bus) => {
  await bus.send(message("s", 1));
  const receiver = await bus.session("s", { maxAutoLockRenewalDurationInMs: 60_000 });
  const held = await takeOne(receiver);
  const first = receiver.sessionLockedUntilUtc.getTime();

  await assertNothingComesUntil(receiver, first + 1_500);

  await receiver.completeMessage(held);
  assert.deepEqual(await bus.left(), []);
});

test("a_session_lock_ends_and_the_messages_come_back", SHORT, async (bus) => {
  await bus.send(message("s", 1));
  const slow = await bus.session("s");
  const held = await takeOne(slow);
  const ended = slow.sessionLockedUntilUtc;

  const next = await bus.nextSession();

  assert.ok(Date.now() >= ended - 100);
  const again = await takeOne(next);
  assert.equal(again.deliveryCount, 1);
  await assertRefused(slow.completeMessage(held), "SessionLockLost");
  await assertRefused(slow.renewSessionLock(), "SessionLockLost");
  await next.completeMessage(again);
});

test("a_closed_session_gives_its_messages_back", SESSIONS, async (bus) => {
  await bus.send(message("s", 1), message("s", 2));
  const first = await bus.session("s");
  await take(first, 2);
  await first.close();

  const second = await bus.session("s");

  assert.deepEqual(bodies(await take(second, 2)), [1, 2]);
});

test("a_session_defers_and_dead_letters", SESSIONS, async (bus) => {
  await bus.send(message("s", "deferred"), message("s", "dead"));
  const receiver = await bus.session("s");
  const [first, second] = await take(receiver, 2);

  await receiver.deferMessage(first);
  await receiver.deadLetterMessage(second);

  const [deferred] = await receiver.receiveDeferredMessages(first.sequenceNumber);
  assert.equal(deferred.body, "deferred");
  await receiver.completeMessage(deferred);
  // The dead letters of a queue with sessions have none.
  const [dead] = await bus.deadLetters(1);
  assert.equal(dead.body, "dead");
  assert.equal(dead.sessionId, "s");
});

test("a_session_shows_its_own_messages", SESSIONS, async (bus) => {
  await bus.send(message("a", 1), message("b", 2), message("a", 3));
  const receiver = await bus.session("a");

  assert.deepEqual(bodies(await receiver.peekMessages(10)), [1, 3]);
});

test("a_session_may_receive_and_delete", SESSIONS, async (bus) => {
  await bus.send(message("s", 1), message("s", 2));
  const receiver = await bus.session("s", { receiveMode: "receiveAndDelete" });

  assert.deepEqual(bodies(await take(receiver, 2)), [1, 2]);
  assert.deepEqual(await bus.left(), []);
});

test("a_session_streams", SESSIONS, async (bus) => {
  const receiver = await bus.session("s");
  const seen = [];
  const { met, check } = condition(() => seen.length === 3);
  const subscription = receiver.subscribe({
    processMessage: async ({ body }) => {
      seen.push(body);
      check();
    },
    processError: async ({ error }) => assert.fail(error),
  });

  await bus.send(message("s", 1), message("other", 9), message("s", 2));
  await bus.send(message("s", 3));
  await met;
  await subscription.close();
  await receiver.close();

  assert.deepEqual(seen, [1, 2, 3]);
  assert.deepEqual(bodies(await bus.left()), [9]);
});

const TOPIC = {
  topic: { subscriptions: [{ name: "ordered", requires_session: true }] },
};

test("a_subscription_may_have_sessions", TOPIC, async (bus) => {
  await bus.send(message("s", 1), message("s", 2));

  const receiver = await bus.client.acceptSession(bus.name, "ordered", "s");

  assert.deepEqual(bodies(await take(receiver, 2)), [1, 2]);
});
