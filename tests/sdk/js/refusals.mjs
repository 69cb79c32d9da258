// Refusals: the server says no, and the client turns that into the documented code.

import assert from "node:assert/strict";
import {
  assertNothingComes,
  assertRefused,
  bodies,
  condition,
  takeOne,
} from "./bus.mjs";
import { test } from "./cases.mjs";

const NOTHING = {};
const PLAIN = { queue: {} };
const SESSIONS = { queue: { requires_session: true } };

const receive = (receiver) => receiver.receiveMessages(1, { maxWaitTimeInMs: 500 });

test("an_unknown_queue_is_not_found", NOTHING, async (bus) => {
  await assertRefused(bus.send("x"), "MessagingEntityNotFound");
  await assertRefused(receive(bus.receiver()), "MessagingEntityNotFound");
  await assertRefused(bus.receiver().peekMessages(1), "MessagingEntityNotFound");
});

test("an_unknown_subscription_is_not_found", { topic: {} }, async (bus) => {
  const receiver = bus.subscriber("nowhere");

  await assertRefused(receive(receiver), "MessagingEntityNotFound");
});

test("a_stream_is_told_that_its_queue_is_not_found", NOTHING, async (bus) => {
  const errors = [];
  const { met, check } = condition(() => errors.length > 0);
  const subscription = bus.receiver().subscribe({
    processMessage: async () => {},
    processError: async ({ error }) => {
      errors.push(error.code);
      check();
    },
  });

  await met;
  await subscription.close();

  assert.equal(errors[0], "MessagingEntityNotFound");
});

function withKey(bus, name, key) {
  return bus.server.connection_string
    .replace(/SharedAccessKeyName=[^;]*/, `SharedAccessKeyName=${name}`)
    .replace(/SharedAccessKey=[^;]*/, `SharedAccessKey=${key}`);
}

test("a_wrong_key_is_refused", PLAIN, async (bus) => {
  const client = bus.connect(withKey(bus, "RootManageSharedAccessKey", "wrong"));

  const sent = client.createSender(bus.name).sendMessages({ body: "x" });

  await assertRefused(sent, "UnauthorizedAccess");
  assert.deepEqual(await bus.left(), []);
});

test("an_unknown_key_name_is_refused", PLAIN, async (bus) => {
  const client = bus.connect(withKey(bus, "unknown", "wrong"));

  await assertRefused(receive(client.createReceiver(bus.name)), "UnauthorizedAccess");
});

const KEYS = {
  queue: {
    authorization_rules: [
      { name: "sends", rights: ["Send"], primary_key: "c2VuZHM=" },
      { name: "listens", rights: ["Listen"], primary_key: "bGlzdGVucw==" },
    ],
  },
};

test("a_key_has_only_its_rights", KEYS, async (bus) => {
  const sends = bus.connect(withKey(bus, "sends", "c2VuZHM="));
  const listens = bus.connect(withKey(bus, "listens", "bGlzdGVucw=="));

  await sends.createSender(bus.name).sendMessages({ body: "x" });
  const message = await takeOne(listens.createReceiver(bus.name));

  assert.equal(message.body, "x");
  const received = receive(sends.createReceiver(bus.name));
  await assertRefused(received, "UnauthorizedAccess");
  const shown = sends.createReceiver(bus.name).peekMessages(1);
  await assertRefused(shown, "UnauthorizedAccess");
  const sent = listens.createSender(bus.name).sendMessages({ body: "y" });
  await assertRefused(sent, "UnauthorizedAccess");
  const later = new Date(Date.now() + 3_600_000);
  const sender = listens.createSender(bus.name);
  const scheduled = sender.scheduleMessages({ body: "z" }, later);
  await assertRefused(scheduled, "UnauthorizedAccess");
  assert.deepEqual(bodies(await bus.left()), ["x"]);
});

const LISTENS = {
  topic: {
    authorization_rules: [
      { name: "listens", rights: ["Listen"], primary_key: "bGlzdGVucw==" },
    ],
    subscriptions: [{ name: "all" }],
  },
};

test("rules_need_the_right_to_listen_alone", LISTENS, async (bus) => {
  const client = bus.connect(withKey(bus, "listens", "bGlzdGVucw=="));

  const rules = client.createRuleManager(bus.name, "all");
  await rules.createRule("label", { subject: "yes" });
  await rules.deleteRule("$Default");

  await bus.send({ body: "no" }, { body: "yes", subject: "yes" });
  assert.deepEqual(bodies(await bus.collected("all", 1)), ["yes"]);
});

test("a_topic_is_no_place_to_receive", LISTENS, async (bus) => {
  await assertRefused(receive(bus.receiver()), "GeneralError");
});

test("a_message_that_is_too_large_is_refused", PLAIN, async (bus) => {
  const sender = bus.sender();

  const sent = sender.sendMessages({ body: Buffer.alloc(300_000) });

  await assertRefused(sent, "MessageSizeExceeded");
  await sender.sendMessages({ body: "small" });
  assert.deepEqual(bodies(await bus.left()), ["small"]);
});

test("a_batch_that_is_too_large_is_refused_whole", PLAIN, async (bus) => {
  const sender = bus.sender();
  const half = { body: Buffer.alloc(150_000) };

  await assertRefused(sender.sendMessages([half, half]), "MessageSizeExceeded");

  assert.deepEqual(await bus.left(), []);
});

const SMALL = { queue: { max_size_in_megabytes: 1 } };

test("a_full_queue_is_refused", SMALL, async (bus) => {
  const sender = bus.sender();
  const body = Buffer.alloc(200_000);
  const fill = async () => {
    for (let n = 0; n < 10; n += 1) await sender.sendMessages({ body });
  };

  await assertRefused(fill(), "QuotaExceeded");

  const receiver = bus.receiver({ skipParsingBodyAsJson: true });
  await receiver.completeMessage(await takeOne(receiver));
  await sender.sendMessages({ body });
});

const SLOW = { queue: { message_rate_per_second: 1 } };

test("a_busy_queue_is_refused_and_may_be_tried_again", SLOW, async (bus) => {
  const sender = bus.sender();
  const many = Array.from({ length: 20 }, () => sender.sendMessages({ body: "x" }));

  const results = await Promise.allSettled(many);

  const refused = results.filter(({ status }) => status === "rejected");
  assert.ok(refused.length > 0 && refused.length < 20, `${refused.length} refused`);
  for (const { reason } of refused) assert.equal(reason.code, "ServiceBusy");
  const retryOptions = { maxRetries: 20, retryDelayInMs: 250 };
  const patient = bus.connect(bus.server.connection_string, { retryOptions });
  await patient.createSender(bus.name).sendMessages({ body: "patient" });
  const left = bodies(await bus.left());
  assert.equal(left.length, 20 - refused.length + 1);
  assert.equal(left.at(-1), "patient");
});

test("a_busy_namespace_is_refused", NOTHING, async (bus) => {
  const { connection_string, queue } = bus.server.slow;
  const sender = bus.connect(connection_string).createSender(queue);
  const many = Array.from({ length: 20 }, () => sender.sendMessages({ body: "x" }));

  const results = await Promise.allSettled(many);

  const refused = results.filter(({ status }) => status === "rejected");
  assert.ok(refused.length > 0 && refused.length < 20, `${refused.length} refused`);
  for (const { reason } of refused) assert.equal(reason.code, "ServiceBusy");
});

test("a_disabled_queue_is_refused", { queue: { status: "Disabled" } }, async (bus) => {
  await assertRefused(bus.send("x"), "MessagingEntityDisabled");
  await assertRefused(receive(bus.receiver()), "MessagingEntityDisabled");
});

const NO_SENDS = { queue: { status: "SendDisabled" } };

test("a_queue_may_refuse_sends_only", NO_SENDS, async (bus) => {
  await assertRefused(bus.send("x"), "MessagingEntityDisabled");

  await assertNothingComes(bus.receiver());
});

const NO_RECEIVES = { queue: { status: "ReceiveDisabled" } };

test("a_queue_may_refuse_receives_only", NO_RECEIVES, async (bus) => {
  await bus.send("x");

  await assertRefused(receive(bus.receiver()), "MessagingEntityDisabled");
});

test("a_session_queue_wants_a_session_receiver", SESSIONS, async (bus) => {
  const error = await assertRefused(receive(bus.receiver()), "GeneralError");

  assert.match(error.message, /InvalidOperationError/);
});

test("a_session_queue_wants_messages_with_sessions", SESSIONS, async (bus) => {
  const error = await assertRefused(
    bus.sender().sendMessages({ body: "x" }),
    "GeneralError",
  );

  assert.match(error.message, /InvalidOperationError/);
  await bus.send({ body: "y", sessionId: "s" });
  assert.deepEqual(bodies(await bus.left()), ["y"]);
});

test("a_plain_queue_has_no_sessions", PLAIN, async (bus) => {
  const next = await assertRefused(bus.nextSession(), "GeneralError");

  assert.match(next.message, /InvalidOperationError/);
  // For a session that is named the client has one word, whatever the reason.
  await assertRefused(bus.session("s"), "SessionCannotBeLocked");
});

test("a_partition_key_must_be_the_session", SESSIONS, async (bus) => {
  // Only messages of this kind are not checked by the client itself.
  const message = {
    body: "x",
    bodyType: "value",
    properties: { groupId: "s" },
    messageAnnotations: { "x-opt-partition-key": "other" },
  };

  await assertRefused(bus.sender().sendMessages(message), "GeneralError");
  assert.deepEqual(await bus.left(), []);
});
