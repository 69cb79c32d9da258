// The list of cases.
//
// Owns what a case is: a name, the entities that it wants, and what it does with them.
// Every case has entities of its own, so all of them can run at once. Settings are
// those of the server's configuration file. Knows nothing about the client.

export const cases = new Map();

/**
 * Adds a case. `wants` may have
 *   queue:  settings of a queue with the name of the case
 *   topic:  settings of a topic with the name of the case
 *   queues: settings of other queues by name
 *   namespace: "plain" unless given; "parted" has four shards, "wide" the most
 */
export function test(name, wants, body) {
  if (cases.has(name)) throw new Error(`There are two cases ${name}.`);
  const queues = Object.entries(wants.queues ?? {});
  if (wants.queue) queues.push([name, wants.queue]);
  cases.set(name, {
    name,
    namespace: wants.namespace ?? "plain",
    queues: queues.map(([key, settings]) => ({ name: key, ...settings })),
    topics: wants.topic ? [{ name, ...wants.topic }] : [],
    body,
  });
}

/** Settings of a subscription; without rules it gets every message. */
export function subscription(name, rules = {}, settings = {}) {
  const list = Object.entries(rules).map(([key, rule]) => ({ name: key, ...rule }));
  return { name, ...settings, ...(list.length ? { rules: list } : {}) };
}
