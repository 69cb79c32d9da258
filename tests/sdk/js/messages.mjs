// What is in a message: every part arrives as it was sent.

import assert from "node:assert/strict";
import { takeOne } from "./bus.mjs";
import { test } from "./cases.mjs";

test("every_property_arrives", { queue: {} }, async (bus) => {
  const sent = {
    body: { nested: [1, "two", null] },
    contentType: "application/json",
    correlationId: "correlation",
    messageId: "message",
    partitionKey: "session",
    replyTo: "reply",
    replyToSessionId: "reply-session",
    sessionId: "session",
    subject: "subject",
    timeToLive: 3_600_000,
    to: "to",
    applicationProperties: { text: "ä€😀" },
  };
  await bus.sender().sendMessages(sent);

  const received = await takeOne(bus.receiver());

  for (const [key, value] of Object.entries(sent)) {
    assert.deepEqual(received[key], value, key);
  }
  assert.equal(received.expiresAtUtc - received.enqueuedTimeUtc, sent.timeToLive);
});

test("application_properties_keep_their_types", { queue: {} }, async (bus) => {
  const applicationProperties = {
    boolean: true,
    date: new Date("2024-02-29T12:00:00.123Z"),
    double: 1.5,
    empty: "",
    integer: 42,
    large: 9_007_199_254_740_991,
    negative: -1,
    nothing: null,
    text: "text",
  };
  await bus.send({ body: "x", applicationProperties });

  const message = await takeOne(bus.receiver({ skipConvertingDate: true }));

  assert.deepEqual(message.applicationProperties, applicationProperties);
});

for (const [kind, body] of Object.entries({
  text: "text",
  number: 12.5,
  boolean: false,
  null: null,
  object: { a: { b: [1, 2] } },
  bytes: Buffer.from([0, 1, 254, 255]),
})) {
  test(`a_body_may_be_${kind}`, { queue: {} }, async (bus) => {
    await bus.sender().sendMessages({ body });

    const message = await takeOne(bus.receiver());

    assert.deepEqual(message.body, body);
    assert.equal(message._rawAmqpMessage.bodyType, "data");
  });
}

for (const [kind, { bodyType, body }] of Object.entries({
  data: { bodyType: "data", body: Buffer.from("raw") },
  sequence: { bodyType: "sequence", body: ["one", 2, true, { three: 3 }] },
  text_value: { bodyType: "value", body: "text" },
  map_value: { bodyType: "value", body: { one: 1, two: [1, 2] } },
  number_value: { bodyType: "value", body: -7 },
  boolean_value: { bodyType: "value", body: true },
  null_value: { bodyType: "value", body: null },
})) {
  test(`an_annotated_body_may_be_a_${kind}`, { queue: {} }, async (bus) => {
    await bus.sender().sendMessages({ body, bodyType });

    const message = await takeOne(bus.receiver());

    assert.equal(message._rawAmqpMessage.bodyType, bodyType);
    assert.deepEqual(message.body, body);
  });
}

test("an_annotated_message_keeps_its_sections", { queue: {} }, async (bus) => {
  const sent = {
    body: "x",
    bodyType: "value",
    header: { durable: true, priority: 7 },
    footer: { "x-opt-sum": "abc" },
    messageAnnotations: { "x-opt-mine": "kept", "x-opt-sequence-number": 99 },
    applicationProperties: { a: 1 },
    properties: {
      messageId: "id",
      to: "to",
      subject: "subject",
      replyTo: "reply",
      correlationId: "correlation",
      contentType: "text/plain",
      contentEncoding: "utf-8",
      groupSequence: 3,
    },
  };
  await bus.sender().sendMessages(sent);

  const message = await takeOne(bus.receiver());

  const raw = message._rawAmqpMessage;
  const { "x-opt-mine": mine, ...annotations } = raw.messageAnnotations;
  assert.equal(mine, "kept");
  assert.equal(annotations["x-opt-sequence-number"], 1);
  assert.equal(message.sequenceNumber.toNumber(), 1);
  assert.deepEqual(raw.footer, sent.footer);
  assert.deepEqual(raw.applicationProperties, { a: 1 });
  assert.equal(raw.header.durable, true);
  assert.equal(raw.header.priority, 7);
  for (const [key, value] of Object.entries(sent.properties)) {
    assert.equal(raw.properties[key], value, key);
  }
});

for (const [kind, messageId] of Object.entries({
  text: "text",
  number: 12_345,
  // What the client does with bytes.
  uuid: Buffer.from("00112233445566778899aabbccddeeff", "hex"),
})) {
  test(`a_message_id_may_be_${kind}`, { queue: {} }, async (bus) => {
    await bus.sender().sendMessages({ body: "x", messageId, correlationId: messageId });

    const message = await takeOne(bus.receiver());

    assert.deepEqual(message.messageId, messageId);
    assert.deepEqual(message.correlationId, messageId);
  });
}

test("a_message_without_an_id_is_given_one", { queue: {} }, async (bus) => {
  await bus.send("a", "b");

  const messages = await bus.drained(2);

  const ids = messages.map((message) => message.messageId);
  for (const id of ids) assert.match(id, /^[0-9a-f]{32}$/);
  assert.notEqual(ids[0], ids[1]);
});
