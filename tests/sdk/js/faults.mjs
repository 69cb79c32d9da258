// An application whose server has faults: it sends, receives and manages when told to.
//
// The first line of standard input says where the server is. Each further line names
// one thing to do, and is answered by a line of JSON: the value, or the errors of all
// attempts as the official client raised them. One client with its senders and its
// receivers serves all lines, as in an application that runs on while faults come and
// go.

import { createInterface } from "node:readline";
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

// Less than by default, so that a test sees soon that the client gives up. A silent
// server costs the timeout in full; what succeeds needs a fraction of it.
const RETRY = { maxRetries: 1, retryDelayInMs: 50, timeoutInMs: 3_000 };
// A new connection to a silent server is waited for a minute, whatever the timeout is.
const CONNECT_MS_MAX = 2_000;
// Long enough for a busy machine; what is expected comes much sooner.
const ARRIVES_MS = 20_000;

const MESSAGE = { body: "x" };

class Application {
  #server;
  #client;
  #senders = new Map();
  #receivers = new Map();

  constructor(server) {
    this.#server = server;
    this.#client = this.#connect();
  }

  #connect() {
    const { connection_string } = this.#server;
    return new ServiceBusClient(connection_string, { retryOptions: RETRY });
  }

  async send(queue) {
    if (!this.#senders.has(queue)) {
      this.#senders.set(queue, this.#client.createSender(queue));
    }
    await this.#senders.get(queue).sendMessages(MESSAGE);
  }

  /** Sends over a new connection. */
  async send_anew(queue) {
    const client = this.#connect();
    try {
      const abortSignal = AbortSignal.timeout(CONNECT_MS_MAX);
      await client.createSender(queue).sendMessages(MESSAGE, { abortSignal });
    } finally {
      await client.close();
    }
  }

  /** Receives a message and completes it. */
  async receive(queue) {
    if (!this.#receivers.has(queue)) {
      this.#receivers.set(queue, this.#client.createReceiver(queue));
    }
    const receiver = this.#receivers.get(queue);
    const options = { maxWaitTimeInMs: ARRIVES_MS };
    const messages = await receiver.receiveMessages(1, options);
    for (const message of messages) await receiver.completeMessage(message);
    return messages.map((message) => message.body);
  }

  /** Lists the queues. */
  async manage() {
    const admin = new ServiceBusAdministrationClient(this.#server.admin_string, {
      retryOptions: { maxRetries: 0 },
    });
    const names = [];
    for await (const queue of admin.listQueues()) names.push(queue.name);
    return names;
  }
}

async function answer(application, { action, queue }) {
  try {
    return { value: await application[action](queue) };
  } catch (error) {
    // After a retry it is an AggregateError, with the error of each attempt in it.
    const errors = error instanceof AggregateError ? error.errors : [error];
    return {
      errors: errors.map(({ name, code, message }) => ({ name, code, message })),
    };
  }
}

let application;
for await (const line of createInterface({ input: process.stdin })) {
  const read = JSON.parse(line);
  if (application) {
    console.log(JSON.stringify(await answer(application, read)));
  } else {
    application = new Application(read);
  }
}
// A client that failed may keep a socket open.
process.exit(0);
