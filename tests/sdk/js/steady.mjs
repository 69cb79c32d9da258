// A plain program of the official client, as people write it, with its own retries.
//
// node steady.mjs CONNECTION QUEUE [RETRY]
//
// RETRY are the client's retry options as JSON; without, it has its own. Sends a
// message, receives and completes until it has that one, and again, until standard
// input ends. Each message that was sent or completed is a line of JSON. A lock that is
// lost is no failure: the message was completed, or it comes again.

import { ServiceBusClient } from "@azure/service-bus";

const say = (said) => console.log(JSON.stringify(said));

let stopped = false;
process.stdin.on("end", () => (stopped = true)).resume();

const [connectionString, queue, retry = "{}"] = process.argv.slice(2);
const retryOptions = JSON.parse(retry);
const client = new ServiceBusClient(connectionString, { retryOptions });
const sender = client.createSender(queue);
const receiver = client.createReceiver(queue);
const waiting = new Map();

async function complete(message) {
  try {
    await receiver.completeMessage(message);
    say({ completed: message.body });
  } catch (error) {
    say({ lost: message.body, error: error.message });
  }
  waiting.get(message.body)?.();
}

receiver.subscribe(
  {
    processMessage: complete,
    processError: async ({ error }) => console.error(error.message),
  },
  { autoCompleteMessages: false },
);
for (let number = 0; !stopped; number += 1) {
  const body = String(number);
  const seen = new Promise((resolve) => waiting.set(body, resolve));
  await sender.sendMessages({ body });
  say({ sent: body });
  await seen;
}
await client.close();
process.exit(0);
