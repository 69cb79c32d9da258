// Rules of a subscription, changed through its own management link.

import assert from "node:assert/strict";
import { all, assertRefused, bodies } from "./bus.mjs";
import { subscription, test } from "./cases.mjs";

const TOPIC = { topic: { subscriptions: [subscription("some")] } };

async function listed(rules) {
  const found = [];
  for await (const rule of rules.listRules()) found.push(rule);
  // Where there are none, the client lists one that is undefined.
  return found.filter(Boolean);
}

test("rules_can_be_listed_added_and_removed", TOPIC, async (bus) => {
  const rules = bus.client.createRuleManager(bus.name, "some");
  const [standard] = await listed(rules);
  assert.equal(standard.name, "$Default");
  assert.deepEqual(standard.filter, { sqlExpression: "1=1" });

  await rules.createRule(
    "sql",
    { sqlExpression: "amount > 10" },
    { sqlExpression: "SET size = 'big'" },
  );
  await rules.createRule("correlation", {
    subject: "label",
    correlationId: "c",
    applicationProperties: { text: "x", number: 1, flag: true },
  });
  await rules.deleteRule("$Default");

  const named = (await listed(rules)).map((rule) => [rule.name, rule]);
  const found = Object.fromEntries(named);
  assert.deepEqual(Object.keys(found).sort(), ["correlation", "sql"]);
  assert.deepEqual(found.sql.filter, { sqlExpression: "amount > 10" });
  assert.deepEqual(found.sql.action, { sqlExpression: "SET size = 'big'" });
  assert.equal(found.correlation.filter.subject, "label");
  assert.equal(found.correlation.filter.correlationId, "c");
  assert.equal(found.correlation.filter.messageId, null);
  assert.deepEqual(found.correlation.filter.applicationProperties, {
    text: "x",
    number: 1,
    flag: true,
  });
});

test("rules_work_from_the_next_message_on", TOPIC, async (bus) => {
  const rules = bus.client.createRuleManager(bus.name, "some");
  await bus.send({ body: "before", subject: "no" });
  await rules.createRule("label", { subject: "yes" });
  await rules.deleteRule("$Default");

  await bus.send({ body: "no", subject: "no" }, { body: "yes", subject: "yes" });

  assert.deepEqual(bodies(await bus.collected("some", 2)), ["before", "yes"]);
  assert.deepEqual(await all(bus.subscriber("some")), []);
});

test("a_subscription_without_rules_gets_nothing", TOPIC, async (bus) => {
  const rules = bus.client.createRuleManager(bus.name, "some");
  await rules.deleteRule("$Default");
  assert.deepEqual(await listed(rules), []);

  await bus.send("unmatched");

  assert.deepEqual(await all(bus.subscriber("some")), []);
});

test("a_rule_that_exists_is_refused", TOPIC, async (bus) => {
  const rules = bus.client.createRuleManager(bus.name, "some");
  await rules.createRule("same", { sqlExpression: "1=1" });

  const again = rules.createRule("same", { sqlExpression: "1=0" });

  await assertRefused(again, "MessagingEntityAlreadyExists");
});

test("a_rule_that_makes_no_sense_is_refused", TOPIC, async (bus) => {
  const rules = bus.client.createRuleManager(bus.name, "some");

  const nonsense = rules.createRule("bad", { sqlExpression: "amount >" });

  await assertRefused(nonsense, "GeneralError");
  assert.equal((await listed(rules)).length, 1);
});

test("a_rule_that_is_not_there_cannot_be_removed", TOPIC, async (bus) => {
  const rules = bus.client.createRuleManager(bus.name, "some");

  await assertRefused(rules.deleteRule("nowhere"), "MessagingEntityNotFound");
});
