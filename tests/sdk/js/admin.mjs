// The official administration client, over HTTPS with verification on.
//
// `node admin.mjs --list` prints the names of the cases. `node admin.mjs` reads from
// standard input where the server is, runs all cases and prints a line of JSON for each.
// Each case makes entities of its own, whose names begin with that of the case.

import assert from "node:assert/strict";

const cases = new Map();

function test(name, body) {
  cases.set(name, body);
}

/** What a case holds in its hands. */
class Site {
  constructor(name, server, sdk) {
    this.name = name.replaceAll(/\W/g, "-");
    this.server = server;
    this.authority = `localhost:${server.https_port}`;
    this.sdk = sdk;
    this.admin = this.connect(...this.#key());
    this.client = new sdk.ServiceBusClient(server.connection_string, {
      retryOptions: { maxRetries: 0 },
    });
  }

  #key() {
    const read = (part) => this.server.connection_string.match(`${part}=([^;]*)`)[1];
    return [read("SharedAccessKeyName"), read("SharedAccessKey")];
  }

  connect(keyName, key, options = {}) {
    const text =
      `Endpoint=sb://${this.authority}/;SharedAccessKeyName=${keyName};` +
      `SharedAccessKey=${key}`;
    return new this.sdk.ServiceBusAdministrationClient(text, {
      retryOptions: { maxRetries: 0 },
      ...options,
    });
  }

  async send(queue, ...messages) {
    const sender = this.client.createSender(queue);
    await sender.sendMessages(messages);
    await sender.close();
  }

  /** Takes a message out of a queue, or a subscription. */
  async takeOne(...address) {
    const mode = { receiveMode: "receiveAndDelete" };
    const receiver = this.client.createReceiver(...address, mode);
    const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 20_000 });
    await receiver.close();
    assert.ok(message, "no message came");
    return message;
  }
}

async function all(iterator) {
  const found = [];
  for await (const item of iterator) found.push(item);
  return found;
}

async function refused(promise, code, status) {
  const error = await promise.then(
    (value) => assert.fail(`not refused: ${JSON.stringify(value)}`),
    (reason) => reason,
  );
  if (error instanceof assert.AssertionError) throw error;
  assert.equal(error.code, code, `${error.name}: ${error.message}`);
  if (status) assert.equal(error.statusCode, status);
  return error;
}

/** Asserts that an object has these properties, whatever else it has. */
function assertHas(found, wanted) {
  const same = Object.keys(wanted).map((key) => [key, found[key]]);
  assert.deepEqual(Object.fromEntries(same), wanted);
}

function rule(keyName, ...accessRights) {
  return {
    claimType: "SharedAccessKey",
    accessRights,
    keyName,
    primaryKey: "p".repeat(44),
    secondaryKey: "s".repeat(44),
  };
}

test("every_property_of_a_queue_comes_back", async ({ admin, name, authority }) => {
  await admin.createQueue(`${name}-to`);
  const settings = {
    autoDeleteOnIdle: "PT7M",
    authorizationRules: [rule("owner", "Manage", "Send", "Listen")],
    deadLetteringOnMessageExpiration: true,
    defaultMessageTimeToLive: "PT11M",
    duplicateDetectionHistoryTimeWindow: "PT12M",
    enableBatchedOperations: false,
    enableExpress: true,
    enablePartitioning: false,
    lockDuration: "PT13S",
    maxDeliveryCount: 14,
    maxMessageSizeInKilobytes: 2048,
    maxSizeInMegabytes: 3072,
    requiresDuplicateDetection: true,
    requiresSession: false,
    status: "ReceiveDisabled",
    userMetadata: "a <b> & 'c' \"d\" é",
  };
  const target = `${name}-to`;
  const forward = { forwardTo: target, forwardDeadLetteredMessagesTo: target };

  const made = await admin.createQueue(name, { ...settings, ...forward });

  const url = `sb://${authority}/${target}`;
  const shown = { forwardTo: url, forwardDeadLetteredMessagesTo: url };
  const wanted = { ...settings, ...shown, name, availabilityStatus: "Available" };
  assertHas(made, wanted);
  assertHas(await admin.getQueue(name), wanted);
});

test("every_property_of_a_topic_comes_back", async ({ admin, name }) => {
  const settings = {
    autoDeleteOnIdle: "PT7M",
    authorizationRules: [rule("sender", "Send"), rule("listener", "Listen")],
    defaultMessageTimeToLive: "PT11M",
    duplicateDetectionHistoryTimeWindow: "PT12M",
    enableBatchedOperations: false,
    enableExpress: true,
    enablePartitioning: false,
    maxMessageSizeInKilobytes: 2048,
    maxSizeInMegabytes: 3072,
    requiresDuplicateDetection: true,
    status: "SendDisabled",
    supportOrdering: false,
    userMetadata: "metadata",
  };

  const made = await admin.createTopic(name, settings);

  assertHas(made, { ...settings, name });
  assertHas(await admin.getTopic(name), { ...settings, name });
});

test("every_property_of_a_subscription_comes_back", async ({ admin, name }) => {
  await admin.createTopic(name);
  const settings = {
    autoDeleteOnIdle: "PT7M",
    deadLetteringOnFilterEvaluationExceptions: false,
    deadLetteringOnMessageExpiration: true,
    defaultMessageTimeToLive: "PT11M",
    enableBatchedOperations: false,
    lockDuration: "PT13S",
    maxDeliveryCount: 14,
    requiresSession: true,
    status: "Disabled",
    userMetadata: "metadata",
  };

  const made = await admin.createSubscription(name, "s", settings);

  const wanted = { ...settings, topicName: name, subscriptionName: "s" };
  assertHas(made, wanted);
  assertHas(await admin.getSubscription(name, "s"), wanted);
});

test("what_was_read_can_be_changed_and_sent_back", async ({ admin, name }) => {
  const queue = await admin.createQueue(name);
  const topic = await admin.createTopic(`${name}-t`);
  const subscription = await admin.createSubscription(`${name}-t`, "s");
  queue.maxDeliveryCount = 3;
  topic.userMetadata = "changed";
  subscription.lockDuration = "PT20S";

  await admin.updateQueue(queue);
  await admin.updateTopic(topic);
  await admin.updateSubscription(subscription);

  const changed = await admin.getQueue(name);
  assert.equal(changed.maxDeliveryCount, 3);
  assert.equal(changed.defaultMessageTimeToLive, queue.defaultMessageTimeToLive);
  assert.equal((await admin.getTopic(`${name}-t`)).userMetadata, "changed");
  const shown = await admin.getSubscription(`${name}-t`, "s");
  assert.equal(shown.lockDuration, "PT20S");
});

test("rules_come_back", async ({ admin, name }) => {
  await admin.createTopic(name);
  await admin.createSubscription(name, "s");
  const moment = new Date("2020-07-05T11:12:13.250Z");
  const correlation = {
    correlationId: "c",
    subject: "l",
    to: "t",
    replyTo: "r",
    replyToSessionId: "rs",
    sessionId: "s",
    messageId: "m",
    contentType: "ct",
    applicationProperties: { text: "x", number: 1.5, whole: 2, flag: false, moment },
  };
  const sql = { sqlExpression: "a = @p", sqlParameters: { "@p": 5 } };
  const action = { sqlExpression: "SET b = @q", sqlParameters: { "@q": "x" } };

  await admin.createRule(name, "s", "correlation", correlation, action);
  await admin.createRule(name, "s", "sql", sql);

  const found = await admin.getRule(name, "s", "correlation");
  assert.deepEqual(found.filter, correlation);
  assert.deepEqual(found.action, action);
  assert.deepEqual((await admin.getRule(name, "s", "sql")).filter, sql);
  const rules = await all(admin.listRules(name, "s"));
  const names = rules.map((listed) => listed.name);
  assert.deepEqual(names.sort(), ["$Default", "correlation", "sql"]);
  await admin.updateRule(name, "s", { ...found, filter: { subject: "other" } });
  const changed = await admin.getRule(name, "s", "correlation");
  assert.equal(changed.filter.subject, "other");
  await admin.deleteRule(name, "s", "sql");
  assert.equal(await admin.ruleExists(name, "s", "sql"), false);
});

test("a_subscription_may_bring_its_first_rule", async (site) => {
  const { admin, name } = site;
  await admin.createTopic(name);
  const filter = { sqlExpression: "n > 5" };

  await admin.createSubscription(name, "s", {
    defaultRuleOptions: { name: "big", filter },
  });

  const [only, ...more] = await all(admin.listRules(name, "s"));
  assert.deepEqual([only.name, only.filter.sqlExpression], ["big", "n > 5"]);
  assert.deepEqual(more, []);
  const small = { body: "small", applicationProperties: { n: 1 } };
  const big = { body: "big", applicationProperties: { n: 9 } };
  await site.send(name, small, big);
  assert.equal((await site.takeOne(name, "s")).body, "big");
});

test("names_may_have_slashes", async (site) => {
  const { admin } = site;
  const name = "contoso/x-servicebus-transfer/0";
  const encoded = encodeURIComponent(name);

  const made = await admin.createQueue(name, { userMetadata: "backlog" });
  await site.send(name, { body: "x" });

  assert.equal(made.name, name);
  assert.equal((await admin.getQueue(name)).userMetadata, "backlog");
  assert.equal((await admin.getQueue(encoded)).userMetadata, "backlog");
  assert.equal((await admin.getQueueRuntimeProperties(name)).activeMessageCount, 1);
  assert.equal((await site.takeOne(name)).body, "x");
  const names = (await all(admin.listQueues())).map((queue) => queue.name);
  assert.ok(names.includes(name));
  await admin.deleteQueue(encoded);
  assert.equal(await admin.queueExists(name), false);
});

test("counts_are_exact", async (site) => {
  const { admin, name } = site;
  await admin.createQueue(name);
  await site.send(name, { body: "active" }, { body: "dead" });
  const sender = site.client.createSender(name);
  const later = new Date(Date.now() + 3_600_000);
  await sender.scheduleMessages({ body: "scheduled" }, later);
  const receiver = site.client.createReceiver(name);
  const messages = await receiver.receiveMessages(2, { maxWaitTimeInMs: 20_000 });
  await receiver.deadLetterMessage(messages.find((m) => m.body === "dead"));

  const runtime = await admin.getQueueRuntimeProperties(name);

  assertHas(runtime, {
    name,
    activeMessageCount: 1,
    deadLetterMessageCount: 1,
    scheduledMessageCount: 1,
    transferMessageCount: 0,
    transferDeadLetterMessageCount: 0,
    totalMessageCount: 3,
  });
  assert.ok(runtime.sizeInBytes > 0);
  for (const moment of [runtime.createdAt, runtime.modifiedAt, runtime.accessedAt]) {
    assert.ok(Math.abs(Date.now() - moment.getTime()) < 60_000, moment);
  }
  const listed = await all(admin.listQueuesRuntimeProperties());
  const same = listed.find((queue) => queue.name === name);
  assert.equal(same.totalMessageCount, 3);
});

test("topics_and_subscriptions_have_counts", async (site) => {
  const { admin, name } = site;
  await admin.createTopic(name);
  await admin.createSubscription(name, "s");
  await site.send(name, { body: "x" });

  const topic = await admin.getTopicRuntimeProperties(name);
  const subscription = await admin.getSubscriptionRuntimeProperties(name, "s");

  assert.equal(topic.subscriptionCount, 1);
  assertHas(subscription, { activeMessageCount: 1, totalMessageCount: 1 });
  const below = await all(admin.listSubscriptionsRuntimeProperties(name));
  assert.deepEqual(below.map((s) => s.activeMessageCount), [1]);
  const topics = await all(admin.listTopicsRuntimeProperties());
  assert.ok(topics.some((listed) => listed.name === name));
});

test("lists_are_read_page_by_page", async ({ admin, name }) => {
  const wanted = ["a", "b", "c", "d", "e"].map((letter) => `${name}-${letter}`);
  for (const queue of wanted) await admin.createQueue(queue);
  await admin.createTopic(name);
  for (const letter of ["a", "b", "c"]) await admin.createSubscription(name, letter);

  let pages = 0;
  const found = [];
  for await (const page of admin.listQueues().byPage({ maxPageSize: 2 })) {
    assert.ok(page.length <= 2);
    found.push(...page.map((queue) => queue.name));
    pages += 1;
  }

  assert.deepEqual(found.filter((queue) => wanted.includes(queue)), wanted);
  assert.ok(pages >= 3);
  const subscriptions = await all(admin.listSubscriptions(name));
  assert.deepEqual(subscriptions.map((s) => s.subscriptionName), ["a", "b", "c"]);
  assert.ok((await all(admin.listTopics())).some((topic) => topic.name === name));
});

test("keys_of_a_queue_work_at_once", async (site) => {
  const { admin, name } = site;
  await admin.createQueue(name, {
    authorizationRules: [rule("owner", "Manage", "Send", "Listen")],
  });
  const owner = site.connect("owner", "p".repeat(44));

  assert.equal((await owner.getQueue(name)).name, name);
  await refused(all(owner.listQueues()), "UnauthorizedRequestError", 401);
  const queue = await owner.getQueue(name);
  queue.authorizationRules[0].primaryKey = "n".repeat(44);
  await owner.updateQueue(queue);
  await refused(owner.getQueue(name), "UnauthorizedRequestError", 401);
  const renewed = site.connect("owner", "n".repeat(44));
  assert.equal((await renewed.getQueue(name)).name, name);
});

test("errors_are_the_ones_the_client_knows", async (site) => {
  const { admin, name } = site;
  const queue = await admin.createQueue(name);
  const exists = "MessageEntityAlreadyExistsError";
  const missing = "MessageEntityNotFoundError";

  await refused(admin.createQueue(name), exists, 409);
  await refused(admin.createTopic(name), exists, 409);
  await refused(admin.getQueue(`${name}-no`), missing);
  await refused(admin.getSubscription(name, "no"), missing);
  await refused(admin.deleteQueue(`${name}-no`), missing, 404);
  await refused(admin.updateQueue({ ...queue, name: `${name}-no` }), missing, 404);
  await refused(admin.createSubscription(`${name}-no`, "s"), missing, 404);
  const changed = admin.updateQueue({ ...queue, requiresSession: true });
  const error = await refused(changed, "ServiceError", 400);
  assert.match(error.message, /SubCode=40000/);
  const long = admin.createQueue(`${name}-no`, { lockDuration: "PT6M" });
  await refused(long, "ServiceError", 400);
  const stranger = site.connect("RootManageSharedAccessKey", "guess");
  const stopped = stranger.getQueue(name);
  const denied = await refused(stopped, "UnauthorizedRequestError", 401);
  assert.match(denied.message, /claim is empty or token is invalid/);
});

test("things_exist_or_do_not", async ({ admin, name }) => {
  await admin.createQueue(name);
  await admin.createTopic(`${name}-t`);
  await admin.createSubscription(`${name}-t`, "s");

  assert.equal(await admin.queueExists(name), true);
  assert.equal(await admin.queueExists(`${name}-no`), false);
  assert.equal(await admin.topicExists(`${name}-t`), true);
  assert.equal(await admin.topicExists(`${name}-no`), false);
  assert.equal(await admin.subscriptionExists(`${name}-t`, "s"), true);
  assert.equal(await admin.subscriptionExists(`${name}-t`, "no"), false);
  assert.equal(await admin.ruleExists(`${name}-t`, "s", "$Default"), true);
  await admin.deleteSubscription(`${name}-t`, "s");
  await admin.deleteTopic(`${name}-t`);
  assert.equal(await admin.topicExists(`${name}-t`), false);
});

test("the_namespace_is_described", async ({ admin }) => {
  const shown = await admin.getNamespaceProperties();

  assertHas(shown, { name: "javascript", messagingSku: "Premium" });
  assert.ok(Math.abs(Date.now() - shown.createdAt.getTime()) < 600_000);
});

test("the_oldest_version_has_no_large_messages", async (site) => {
  const [keyName, key] = ["RootManageSharedAccessKey", "SAS_KEY_VALUE"];
  const old = site.connect(keyName, key, { serviceVersion: "2017-04" });

  const made = await old.createQueue(site.name);

  assert.equal(made.maxMessageSizeInKilobytes, undefined);
  const options = { maxMessageSizeInKilobytes: 1024 };
  await refused(old.createQueue(`${site.name}-large`, options), "ServiceError", 400);
});

// -- running ------------------------------------------------------------------------

async function standardInput() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString());
}

async function run(name, body, server, sdk) {
  const site = new Site(name, server, sdk);
  let failure = null;
  try {
    await body(site);
    await site.client.close();
  } catch (error) {
    failure = error.stack ?? String(error);
  }
  console.log(JSON.stringify({ name, failure }));
}

if (process.argv.includes("--list")) {
  console.log(JSON.stringify([...cases.keys()]));
} else {
  const server = await standardInput();
  const sdk = await import("@azure/service-bus");
  // Pages count entities: one that another case deletes meanwhile would shift them.
  const alone = "lists_are_read_page_by_page";
  await run(alone, cases.get(alone), server, sdk);
  cases.delete(alone);
  await Promise.all([...cases].map(([name, body]) => run(name, body, server, sdk)));
  // A client that failed may keep a socket open.
  process.exit(0);
}
