// Diverts messages by hand, as documented, with the official client.
//
// Reads a JSON object from standard input: where the secondary is, the backlog queue,
// and a time. Sends one message for each way to write an alias; its id says which. The
// types that the client has no word for are those of its own AMQP library.

import { ServiceBusClient } from "@azure/service-bus";
import rhea from "rhea";

const TICKS_PER_MS = 10_000;
const MINUTES_10_MS = 600_000;

const long = rhea.types.wrap_long;

function timeSpan(milliseconds) {
  const ticks = long(milliseconds * TICKS_PER_MS);
  return rhea.types.wrap_described(ticks, "com.microsoft:timespan");
}

function aliased(messageId, path, aliases) {
  return {
    messageId,
    body: Buffer.from(`body of ${messageId}`),
    contentType: "text/plain",
    subject: "by hand",
    correlationId: "c",
    applicationProperties: { "x-ms-path": path, mine: 7, ...aliases },
  };
}

function messages({ queue, sessions, scheduledMs }) {
  const ttl = "x-ms-timetolive";
  const scheduled = "x-ms-scheduledenqueuetimeutc";
  return [
    aliased("path alone", queue, {}),
    aliased("session", sessions, { "x-ms-sessionid": "basket" }),
    aliased("ttl as time span", queue, { [ttl]: timeSpan(MINUTES_10_MS) }),
    aliased("ttl as long", queue, { [ttl]: long(MINUTES_10_MS * TICKS_PER_MS) }),
    aliased("ttl as text", queue, { [ttl]: "PT10M" }),
    aliased("scheduled as date", queue, { [scheduled]: new Date(scheduledMs) }),
    aliased("scheduled as text", queue, {
      [scheduled]: new Date(scheduledMs).toISOString(),
    }),
    aliased("scheduled in the past", queue, { [scheduled]: new Date(0) }),
    aliased("everything", sessions, {
      "x-ms-sessionid": "basket",
      [ttl]: timeSpan(MINUTES_10_MS),
      [scheduled]: new Date(scheduledMs),
    }),
    aliased("bad ttl", queue, { [ttl]: "soon" }),
  ];
}

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const wanted = JSON.parse(Buffer.concat(chunks).toString());
const client = new ServiceBusClient(wanted.connection_string);
const sender = client.createSender(wanted.backlog);
for (const message of messages(wanted)) await sender.sendMessages(message);
await client.close();
