// Runs the cases.
//
// `node run.mjs --list` prints their names and the entities that they want.
// `node run.mjs` reads a JSON object from standard input, the names of cases and where
// each namespace is, and prints a line of JSON for each case as soon as it is done.

import { Bus } from "./bus.mjs";
import { cases } from "./cases.mjs";
import "./browsing.mjs";
import "./lifetimes.mjs";
import "./messages.mjs";
import "./partitioned.mjs";
import "./receiving.mjs";
import "./refusals.mjs";
import "./rules.mjs";
import "./scheduling.mjs";
import "./sending.mjs";
import "./sessions.mjs";
import "./settling.mjs";
import "./topics.mjs";
import "./transports.mjs";

// Many cases only wait for a lock to end; more at once would be slow, not wrong.
const AT_ONCE = 16;
const CASE_MS_MAX = 45_000;

async function standardInput() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString());
}

async function run({ name, namespace, body }, servers, ServiceBusClient) {
  const bus = new Bus(name, servers[namespace], ServiceBusClient);
  let timer;
  const late = new Promise((_, reject) => {
    const error = new Error(`not done after ${CASE_MS_MAX / 1000} s`);
    timer = setTimeout(() => reject(error), CASE_MS_MAX);
  });
  const started = Date.now();
  let failure = null;
  try {
    await Promise.race([body(bus), late]);
    await Promise.race([bus.close(), late]);
  } catch (error) {
    failure = error.stack ?? String(error);
    // The failure is known; a client that cannot even close adds nothing to it.
    bus.close().catch(() => {});
  } finally {
    clearTimeout(timer);
  }
  console.log(JSON.stringify({ name, failure, ms: Date.now() - started }));
}

async function runAll() {
  const { names, servers } = await standardInput();
  const { ServiceBusClient } = await import("@azure/service-bus");
  const waiting = names.map((name) => cases.get(name));
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      await run(next, servers, ServiceBusClient);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

if (process.argv.includes("--list")) {
  console.log(JSON.stringify([...cases.values()]));
} else {
  // The client throws in the callbacks of its socket when a frame makes no sense to it.
  const escaped = [];
  process.on("uncaughtException", (error) => escaped.push(error.stack));
  await runAll();
  console.log(JSON.stringify({ escaped }));
  // A client that failed may keep a socket open.
  process.exit(0);
}
