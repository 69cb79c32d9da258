// Topics: filters choose, actions change, each subscription has its own copy.

import assert from "node:assert/strict";
import { all, assertNothingComes, bodies, takeOne } from "./bus.mjs";
import { subscription, test } from "./cases.mjs";

const COPIES = { subscriptions: [subscription("one"), subscription("two")] };

test("every_subscription_gets_a_copy", { topic: COPIES }, async (bus) => {
  await bus.send("a", "b");

  const receiver = bus.subscriber("one");
  const message = await takeOne(receiver);
  await receiver.completeMessage(message);

  assert.equal(message.sequenceNumber.toNumber(), 1);
  assert.deepEqual(bodies(await bus.collected("one", 1)), ["b"]);
  assert.deepEqual(bodies(await bus.collected("two", 2)), ["a", "b"]);
});

const FILTERS = {
  subscriptions: [
    subscription("true", { all: { filter: { true: {} } } }),
    subscription("false", { none: { filter: { false: {} } } }),
    subscription("sql", {
      big: { filter: { sql: "amount > 10 AND sys.Label LIKE 'order%'" } },
    }),
    subscription("label", { label: { filter: { correlation: { label: "order-1" } } } }),
    subscription("several", {
      several: {
        filter: {
          correlation: {
            correlation_id: "c",
            content_type: "text/plain",
            properties: { region: "north" },
          },
        },
      },
    }),
    subscription("either", {
      first: { filter: { sql: "amount = 5" } },
      second: { filter: { sql: "region = 'north'" } },
    }),
  ],
};

test("filters_choose", { topic: FILTERS }, async (bus) => {
  await bus.send(
    { body: "small", subject: "order-1", applicationProperties: { amount: 5 } },
    { body: "big", subject: "order-2", applicationProperties: { amount: 50 } },
    {
      body: "north",
      correlationId: "c",
      contentType: "text/plain",
      applicationProperties: { region: "north", amount: 5 },
    },
    { body: "nothing", correlationId: "c" },
  );

  const expected = {
    true: ["small", "big", "north", "nothing"],
    false: [],
    sql: ["big"],
    label: ["small"],
    several: ["north"],
    either: ["small", "north"],
  };
  for (const [name, wanted] of Object.entries(expected)) {
    const messages = await all(bus.subscriber(name));
    assert.deepEqual(bodies(messages), wanted, name);
  }
});

const ACTIONS = {
  subscriptions: [
    subscription("changed", {
      change: {
        filter: { sql: "kind = 'x'" },
        action: "SET sys.Label = 'new'; SET added = amount + 1; REMOVE kind",
      },
    }),
    subscription("copies", {
      first: { filter: { true: {} }, action: "SET rule = 'first'" },
      second: { filter: { true: {} }, action: "SET rule = 'second'" },
    }),
  ],
};

test("actions_change_the_copy", { topic: ACTIONS }, async (bus) => {
  await bus.send({
    body: "x",
    subject: "old",
    applicationProperties: { kind: "x", amount: 1 },
  });

  const [changed] = await bus.collected("changed", 1);
  const copies = await bus.collected("copies", 2);

  assert.equal(changed.subject, "new");
  const { RuleName, ...properties } = changed.applicationProperties;
  assert.equal(RuleName, "change");
  assert.deepEqual(properties, { amount: 1, added: 2 });
  const rules = copies.map(({ applicationProperties }) => applicationProperties.rule);
  assert.deepEqual(rules.sort(), ["first", "second"]);
  assert.equal(copies[0].subject, "old");
});

const ONCE = {
  subscriptions: [subscription("all", {}, { max_delivery_count: 1 })],
};

test("a_subscription_has_dead_letters", { topic: ONCE }, async (bus) => {
  await bus.send("poison");
  const receiver = bus.subscriber("all");

  await receiver.abandonMessage(await takeOne(receiver));

  await assertNothingComes(receiver);
  const dead = bus.subscriber("all", { subQueueType: "deadLetter" });
  const message = await takeOne(dead);
  assert.equal(message.body, "poison");
  assert.equal(message.deadLetterReason, "MaxDeliveryCountExceeded");
  await dead.completeMessage(message);
  assert.deepEqual(await all(dead), []);
});

const FORWARDED = {
  topic: { subscriptions: [subscription("on", {}, { forward_to: "topics-target" })] },
  queues: { "topics-target": {} },
};

test("a_subscription_forwards_to_a_queue", FORWARDED, async (bus) => {
  await bus.send({ body: "x", messageId: "id" });

  const [message] = await bus.drained(1, {}, "topics-target");

  assert.equal(message.body, "x");
  assert.equal(message.messageId, "id");
});

const DEFERRED = { subscriptions: [subscription("all")] };

test("a_subscription_defers_and_browses", { topic: DEFERRED }, async (bus) => {
  await bus.send("later");
  const receiver = bus.subscriber("all");
  const message = await takeOne(receiver);
  await receiver.renewMessageLock(message);
  await receiver.deferMessage(message);

  assert.deepEqual(bodies(await receiver.peekMessages(1)), ["later"]);
  const [again] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  await receiver.completeMessage(again);
  await assertNothingComes(receiver);
});

const FAILS = { fail: { filter: { true: {} }, action: "SET sys.Label = n" } };
const FAILING = {
  subscriptions: [
    subscription("kept", FAILS),
    subscription("dropped", FAILS, {
      dead_lettering_on_filter_evaluation_exceptions: false,
    }),
    subscription("other"),
  ],
};

test("a_rule_that_fails_dead_letters_if_asked", { topic: FAILING }, async (bus) => {
  // The label is a text, and this is none.
  await bus.send({ body: "x", applicationProperties: { n: true } });

  assert.deepEqual(bodies(await bus.collected("other", 1)), ["x"]);
  const options = { subQueueType: "deadLetter" };
  assert.deepEqual(bodies(await all(bus.subscriber("kept", options))), ["x"]);
  assert.deepEqual(bodies(await all(bus.subscriber("dropped", options))), []);
});
