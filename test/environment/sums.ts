import { defineEnvironment, type Environment, type EnvironmentDefinition } from "../../src/library/environment/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { trajectory, type Policy } from "../../src/base/trajectory/index.ts";

export interface Sum {
  readonly a: number;
  readonly b: number;
}

/** Adding two numbers: right counts 1, at most two characters half of that again; the length is recorded only. */
export function sums(change: Partial<EnvironmentDefinition<Sum>> = {}): Environment<Sum> {
  return defineEnvironment<Sum>({
    name: "sums",
    scenarios: {
      train: [1, 2, 3, 4].map((a) => ({ a, b: 5 })),
      eval: [
        { a: 1, b: 2 },
        { a: 3, b: 4 },
        { a: 2, b: 2 },
      ],
    },
    async rollout({ a, b }, { policy, sampling }) {
      const t = trajectory({ messages: [{ role: "user", content: `${a}+${b}` }] });
      await t.sample(policy, { maxCompletionTokens: 8, ...sampling });
      return t;
    },
    rewards: [
      { name: "correct", score: ({ scenario, text }) => text === String(scenario.a + scenario.b) },
      { name: "short", weight: 0.5, score: ({ text }) => text !== "" && text.length <= 2 },
      { name: "length", weight: 0, score: ({ text }) => text.length },
    ],
    gold: ({ a, b }) => String(a + b),
    ...change,
  });
}

/** Answers a sum with what `answer` makes of it and of how often it was asked, from 0. */
export function sumPolicy(answer: (sum: Sum, attempt: number) => string): Policy {
  const asked = new Map<string, number>();
  return createScriptedPolicy(
    ({ messages }) => {
      const question = String(messages.at(-1)?.content);
      const attempt = asked.get(question) ?? 0;
      asked.set(question, attempt + 1);
      const [a = 0, b = 0] = question.split("+").map(Number);
      return { text: answer({ a, b }, attempt) };
    },
    { id: "team/demo/sums:step2" },
  );
}
