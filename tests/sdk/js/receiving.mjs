// Receiving: batches and streams, both modes, waiting, draining.

import assert from "node:assert/strict";
import {
  ARRIVES_MS,
  assertNothingComes,
  bodies,
  condition,
  take,
  takeOne,
} from "./bus.mjs";
import { test } from "./cases.mjs";

test("a_locked_message_is_not_given_to_others", { queue: {} }, async (bus) => {
  await bus.send("mine");
  const mine = bus.receiver();

  const message = await takeOne(mine);

  await assertNothingComes(bus.receiver());
  await mine.completeMessage(message);
  assert.deepEqual(await bus.left(), []);
});

test("receive_and_delete_leaves_nothing", { queue: {} }, async (bus) => {
  await bus.send("a", "b");

  const messages = await bus.drained(2);

  assert.deepEqual(bodies(messages), ["a", "b"]);
  assert.equal(messages[0].lockToken, undefined);
  assert.deepEqual(await bus.left(), []);
});

test("an_empty_receive_ends_after_its_wait", { queue: {} }, async (bus) => {
  const receiver = bus.receiver();
  await assertNothingComes(receiver);

  const started = Date.now();
  const messages = await receiver.receiveMessages(5, { maxWaitTimeInMs: 400 });

  assert.deepEqual(messages, []);
  assert.ok(Date.now() - started >= 390);
});

test("a_drain_is_answered_and_the_link_lives_on", { queue: {} }, async (bus) => {
  const receiver = bus.receiver();
  await assertNothingComes(receiver);
  // The client closes its link when a drain is not answered; that shows only inside.
  const link = receiver._batchingReceiver.link;
  await assertNothingComes(receiver);

  await bus.send("later");

  assert.equal((await takeOne(receiver)).body, "later");
  assert.equal(receiver._batchingReceiver.link, link);
});

test("credit_that_was_drained_takes_no_message", { queue: {} }, async (bus) => {
  const first = bus.receiver();
  await assertNothingComes(first);

  await bus.send("free");

  assert.equal((await takeOne(bus.receiver())).body, "free");
});

test("a_waiting_receiver_gets_a_message_at_once", { queue: {} }, async (bus) => {
  const waiting = takeOne(bus.receiver());
  await bus.left();
  const sent = Date.now();
  await bus.send("now");

  assert.equal((await waiting).body, "now");
  assert.ok(Date.now() - sent < ARRIVES_MS / 4);
});

test("a_receive_takes_what_is_there", { queue: {} }, async (bus) => {
  await bus.send("a", "b");

  const options = { maxWaitTimeInMs: ARRIVES_MS };
  const messages = await bus.receiver().receiveMessages(10, options);

  assert.deepEqual(bodies(messages), ["a", "b"]);
});

test("messages_come_in_the_order_of_sending", { queue: {} }, async (bus) => {
  const numbers = [...Array(200).keys()];
  await bus.send(...numbers.map((body) => ({ body })));
  const receiver = bus.receiver();

  const messages = [...(await take(receiver, 50)), ...(await take(receiver, 150))];

  assert.deepEqual(bodies(messages), numbers);
  await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  assert.deepEqual(await bus.left(), []);
});

function stream(receiver, count, options = {}) {
  const seen = [];
  const errors = [];
  const { met, check } = condition(() => seen.length >= count || errors.length > 0);
  const subscription = receiver.subscribe(
    {
      processMessage: async (message) => {
        seen.push(message);
        await options.each?.(message);
        check();
      },
      processError: async ({ error }) => {
        if (options.ignoreErrors) return;
        errors.push(error);
        check();
      },
    },
    options,
  );
  const done = async () => {
    await met;
    await subscription.close();
    assert.deepEqual(errors, []);
    return seen;
  };
  return { done, seen };
}

test("a_stream_completes_by_itself", { queue: {} }, async (bus) => {
  const numbers = [...Array(30).keys()];
  const receiver = bus.receiver();
  const { done } = stream(receiver, 30, { maxConcurrentCalls: 5 });

  await bus.send(...numbers.map((body) => ({ body })));

  assert.deepEqual(bodies(await done()), numbers);
  await receiver.close();
  assert.deepEqual(bodies(await bus.left()), []);
});

test("a_stream_may_settle_by_hand", { queue: {} }, async (bus) => {
  await bus.send("a", "b", "c");
  const receiver = bus.receiver();
  const { done } = stream(receiver, 3, {
    autoCompleteMessages: false,
    each: async (message) => {
      if (message.body === "b") await receiver.deferMessage(message);
      else await receiver.completeMessage(message);
    },
  });

  await done();

  const left = await bus.left();
  assert.deepEqual(bodies(left), ["b"]);
  assert.equal(left[0].state, "deferred");
});

test("a_stream_abandons_what_its_handler_refuses", { queue: {} }, async (bus) => {
  await bus.send("twice");
  const counts = [];
  const { done } = stream(bus.receiver(), 2, {
    ignoreErrors: true,
    each: async (message) => {
      counts.push(message.deliveryCount);
      if (counts.length === 1) throw new Error("the handler fails on purpose");
    },
  });

  await done();

  assert.deepEqual(counts, [0, 1]);
});

test("a_stream_may_receive_and_delete", { queue: {} }, async (bus) => {
  const { done } = stream(bus.receiver({ receiveMode: "receiveAndDelete" }), 2);

  await bus.send("a", "b");

  assert.deepEqual(bodies(await done()), ["a", "b"]);
  assert.deepEqual(await bus.left(), []);
});

test("messages_can_be_iterated", { queue: {} }, async (bus) => {
  await bus.send("a", "b", "c");
  const receiver = bus.receiver();
  const seen = [];

  for await (const message of receiver.getMessageIterator()) {
    seen.push(message.body);
    await receiver.completeMessage(message);
    if (seen.length === 3) break;
  }

  assert.deepEqual(seen, ["a", "b", "c"]);
});

test("receivers_compete_and_each_message_goes_to_one", { queue: {} }, async (bus) => {
  const numbers = [...Array(40).keys()];
  await bus.send(...numbers.map((body) => ({ body })));

  const parts = await Promise.all([1, 2].map(() => take(bus.receiver(), 20)));

  const all = bodies(parts.flat()).sort((a, b) => a - b);
  assert.deepEqual(all, numbers);
});
