// The official client at work: what a case holds in its hands.
//
// Owns how a client is made, and short words for what nearly every case does. The rest
// is the client's own interface. It does not retry, so a case sees the first answer of
// the server. The client itself is given, not loaded here: the list of cases has no
// need of it, and is read quickly.

import assert from "node:assert/strict";
import Long from "long";

// Long enough for a busy machine; what is expected comes much sooner.
export const ARRIVES_MS = 20_000;
// What should not come would come at once: the server is idle and near.
export const NOTHING_MS = 300;

const RETRY = { maxRetries: 0, retryDelayInMs: 50, timeoutInMs: ARRIVES_MS };
// Locks end when they should, unless a case asks for renewal.
const LOCK = { maxAutoLockRenewalDurationInMs: 0 };

export class Bus {
  #ServiceBusClient;
  #clients = [];

  constructor(name, server, ServiceBusClient) {
    this.name = name;
    this.server = server;
    this.#ServiceBusClient = ServiceBusClient;
    this.client = this.connect(server.connection_string);
  }

  /** Another client; closed with this one. */
  connect(connectionString, { retryOptions = {}, ...options } = {}) {
    const client = new this.#ServiceBusClient(connectionString, {
      ...options,
      retryOptions: { ...RETRY, ...retryOptions },
    });
    this.#clients.push(client);
    return client;
  }

  async close() {
    await Promise.all(this.#clients.map((client) => client.close()));
  }

  /** The connection string for administration, over HTTPS. */
  secured() {
    const read = (part) => this.server.connection_string.match(`${part}=([^;]*)`)[0];
    const endpoint = `Endpoint=sb://localhost:${this.server.https_port}/`;
    return [endpoint, read("SharedAccessKeyName"), read("SharedAccessKey")].join(";");
  }

  sender(entity = this.name) {
    return this.client.createSender(entity);
  }

  async send(...messages) {
    await this.sendTo(this.name, ...messages);
  }

  async sendTo(entity, ...messages) {
    const sender = this.sender(entity);
    await sender.sendMessages(messages.map(asMessage));
    await sender.close();
  }

  receiver(options = {}, entity = this.name) {
    return patient(this.client.createReceiver(entity, { ...LOCK, ...options }));
  }

  subscriber(subscription, options = {}) {
    const all = { ...LOCK, ...options };
    return patient(this.client.createReceiver(this.name, subscription, all));
  }

  async session(id, options = {}) {
    const all = { ...LOCK, ...options };
    return patient(await this.client.acceptSession(this.name, id, all));
  }

  async nextSession(options = {}) {
    const all = { ...LOCK, ...options };
    return patient(await this.client.acceptNextSession(this.name, all));
  }

  /** Takes so many messages out of a queue. */
  async drained(count, options = {}, entity = this.name) {
    const deleting = { receiveMode: "receiveAndDelete", ...options };
    return await take(this.receiver(deleting, entity), count);
  }

  /** Takes so many messages out of the dead-letter queue. */
  async deadLetters(count, entity = this.name) {
    return await this.drained(count, { subQueueType: "deadLetter" }, entity);
  }

  /** Takes so many messages out of a subscription. */
  async collected(subscription, count) {
    const options = { receiveMode: "receiveAndDelete" };
    return await take(this.subscriber(subscription, options), count);
  }

  /** Shows all messages of a queue, whatever their state. */
  async left(options = {}, entity = this.name) {
    return await all(this.receiver(options, entity));
  }
}

/**
 * Lets a receiver wait longer for the answer to a drain. The 200 ms of the client, after
 * which it closes its link, are too short when all cases share a busy machine. It has
 * this hook for its own tests.
 */
function patient(receiver) {
  const wait = (receiving) => {
    receiving._batchingReceiverLite._drainTimeoutInMs = ARRIVES_MS;
    return receiving;
  };
  if (receiver._messageSession) {
    wait(receiver._messageSession);
  } else {
    const create = receiver._createBatchingReceiver.bind(receiver);
    receiver._createBatchingReceiver = (...args) => wait(create(...args));
  }
  return receiver;
}

function asMessage(message) {
  return typeof message === "string" ? { body: message } : message;
}

/** Shows all messages; without a number the client goes on where it last stopped. */
export async function all(receiver) {
  return await receiver.peekMessages(100, { fromSequenceNumber: Long.ONE });
}

/** Receives exactly so many messages; a receive alone may return fewer. */
export async function take(receiver, count) {
  const messages = [];
  while (messages.length < count) {
    const wanted = count - messages.length;
    const options = { maxWaitTimeInMs: ARRIVES_MS };
    const more = await receiver.receiveMessages(wanted, options);
    const came = `only ${JSON.stringify(bodies(messages))} of ${count} messages came`;
    assert.ok(more.length > 0, came);
    messages.push(...more);
  }
  return messages;
}

export async function takeOne(receiver) {
  return (await take(receiver, 1))[0];
}

export async function assertNothingComes(receiver) {
  const messages = await receiver.receiveMessages(1, { maxWaitTimeInMs: NOTHING_MS });
  assert.deepEqual(bodies(messages), []);
}

/** Receives until a moment has passed: time for the server, and nothing may come. */
export async function assertNothingComesUntil(receiver, moment) {
  const options = { maxWaitTimeInMs: Math.max(moment - Date.now(), 1) };
  assert.deepEqual(bodies(await receiver.receiveMessages(1, options)), []);
}

/** Asserts that the server refuses with an error of this code, and returns it. */
export async function assertRefused(promise, code) {
  const error = await promise.then(
    (value) => assert.fail(`not refused: ${JSON.stringify(value)}`),
    (reason) => reason,
  );
  if (error instanceof assert.AssertionError) throw error;
  assert.equal(error.code, code, `${error.name}: ${error.message}`);
  return error;
}

export function bodies(messages) {
  return messages.map((message) => message.body);
}

/** Waits until a condition of a callback holds: call `check` whenever it may. */
export function condition(holds) {
  let resolve;
  const met = new Promise((done) => (resolve = done));
  return { met, check: () => holds() && resolve() };
}
