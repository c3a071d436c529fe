import assert from "node:assert/strict";
import { test } from "node:test";
import { evaluate, validate } from "whetstone/environment";
import { createScriptedPolicy } from "whetstone/testing";
import environment, { reversed } from "./environment.ts";

test("rewards accept the right answers", async () => {
  const { isValid, findings } = await validate(environment);
  assert.ok(isValid, JSON.stringify(findings));
});

test("a right answer has the reward 1, and an answer without a common letter 0", async () => {
  const right = createScriptedPolicy(({ messages }) => ({ text: reversed(String(messages.at(-1)?.content).replace("Reverse: ", "")) }));
  const wrong = createScriptedPolicy(() => ({ text: "zzzz" }));
  assert.equal((await evaluate(environment, right)).reward.mean, 1);
  assert.equal((await evaluate(environment, wrong)).reward.mean, 0);
});
