// A client with rhea alone: logs in with the name of a rule and its key, without $cbs.
//
// `node plain.mjs PORT NAME KEY QUEUE` sends a message and receives it, and prints what
// it received, or the condition that ended it, as a line of JSON.

import rhea from "rhea";

const [port, username, password, queue] = process.argv.slice(2);

function end(result) {
  console.log(JSON.stringify(result));
  process.exit(0);
}

const container = rhea.create_container();
container.on("sendable", ({ sender }) => {
  sender.send({ body: "by name and key" });
  sender.close();
});
container.on("message", ({ message, connection }) => {
  container.on("connection_close", () => end({ body: message.body }));
  connection.close();
});
container.on("connection_error", ({ connection, error }) =>
  end({ condition: (connection.error ?? error).condition }),
);
container.on("sender_error", ({ sender }) => end({ condition: sender.error.condition }));
container.on("receiver_error", ({ receiver }) =>
  end({ condition: receiver.error.condition }),
);
container.on("disconnected", ({ error }) => end({ condition: error?.message ?? "cut" }));
container.on("connection_open", ({ connection }) => {
  connection.open_sender(queue);
  connection.open_receiver(queue);
});
const options = { host: "127.0.0.1", port: Number(port), username, password };
container.connect({ ...options, reconnect: false });
