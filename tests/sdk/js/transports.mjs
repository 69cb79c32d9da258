// Transports: TLS, WebSocket, and other ways to say who one is.

import assert from "node:assert/strict";
import { all, bodies, take, takeOne } from "./bus.mjs";
import { test } from "./cases.mjs";

const PLAIN = { queue: {} };
const SESSIONS = { queue: { requires_session: true } };

/** The connection string for a port with TLS. */
function secured(bus, port) {
  return bus.server.connection_string
    .replace(/UseDevelopmentEmulator=true;?/, "")
    .replace(/Endpoint=[^;]*/, `Endpoint=sb://localhost:${port}/`);
}

async function roundTrip(client, bus) {
  const sender = client.createSender(bus.name);
  const body = Buffer.alloc(200_000, "0123456789abcdef");
  await sender.sendMessages({ body });
  await sender.sendMessages([{ body: "a" }, { body: "b" }]);
  const receiver = client.createReceiver(bus.name, { skipParsingBodyAsJson: true });
  const messages = await take(receiver, 3);
  for (const message of messages) await receiver.completeMessage(message);
  assert.ok(body.equals(messages[0].body));
  assert.deepEqual(String(messages[2].body), '"b"');
  assert.deepEqual(await all(receiver), []);
}

test("tls_works", PLAIN, async (bus) => {
  await roundTrip(bus.connect(secured(bus, bus.server.amqps_port)), bus);
});

test("a_websocket_works", PLAIN, async (bus) => {
  const { WebSocket: webSocket } = await import("ws");
  const connectionString = secured(bus, bus.server.https_port);
  const webSocketOptions = { webSocket };

  await roundTrip(bus.connect(connectionString, { webSocketOptions }), bus);
});

test("a_websocket_works_without_tls", PLAIN, async (bus) => {
  const { WebSocket } = await import("ws");
  // The client knows wss alone.
  class PlainWebSocket extends WebSocket {
    constructor(address, ...rest) {
      super(address.replace(/^wss:/, "ws:"), ...rest);
    }
  }
  const webSocketOptions = { webSocket: PlainWebSocket };
  const connectionString = secured(bus, bus.server.http_port);

  await roundTrip(bus.connect(connectionString, { webSocketOptions }), bus);
});

test("sessions_work_over_a_websocket", SESSIONS, async (bus) => {
  const { WebSocket: webSocket } = await import("ws");
  const connectionString = secured(bus, bus.server.https_port);
  const client = bus.connect(connectionString, { webSocketOptions: { webSocket } });
  await client.createSender(bus.name).sendMessages({ body: "x", sessionId: "s" });

  const receiver = await client.acceptNextSession(bus.name);

  const message = await takeOne(receiver);
  await receiver.setSessionState("state");
  await receiver.completeMessage(message);
  assert.equal(await receiver.getSessionState(), "state");
});

test("a_custom_endpoint_address_is_used", PLAIN, async (bus) => {
  const somewhere = secured(bus, 1).replace("localhost:1", "localhost");
  const customEndpointAddress = `sb://localhost:${bus.server.amqps_port}`;

  await roundTrip(bus.connect(somewhere, { customEndpointAddress }), bus);
});

test("a_ready_signature_is_taken", PLAIN, async (bus) => {
  const { createSasTokenProvider } = await import("@azure/core-amqp");
  const parts = bus.server.connection_string.split(";").map((part) => {
    const [key, ...value] = part.split("=");
    return [key, value.join("=")];
  });
  const { Endpoint, SharedAccessKeyName, SharedAccessKey } = Object.fromEntries(parts);
  const { token } = await createSasTokenProvider({
    sharedAccessKeyName: SharedAccessKeyName,
    sharedAccessKey: SharedAccessKey,
  }).getToken(`${Endpoint}${Endpoint.endsWith("/") ? "" : "/"}${bus.name}`);
  const signed = `Endpoint=${Endpoint};SharedAccessSignature=${token}`;
  const client = bus.connect(`${signed};UseDevelopmentEmulator=true`);

  await client.createSender(bus.name).sendMessages({ body: "x" });

  assert.deepEqual(bodies(await bus.left()), ["x"]);
});

test("the_connection_string_may_name_the_queue", PLAIN, async (bus) => {
  const client = bus.connect(`${bus.server.connection_string};EntityPath=${bus.name}`);

  await client.createSender(bus.name).sendMessages({ body: "x" });

  assert.deepEqual(bodies(await bus.left()), ["x"]);
});
