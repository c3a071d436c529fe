import { expectTypeOf, it } from "vitest";
import { defineEnvironment, reward, weighted, type Environment, type RewardInput } from "../../src/library/environment/index.ts";
import type { TrainRlOptions } from "../../src/training/train/index.ts";
import { trajectory } from "../../src/base/trajectory/index.ts";

interface Sum {
  readonly a: number;
  readonly b: number;
}

it("takes the type of a scenario from `scenarios`, for the rollout and every form of reward", () => {
  const environment = defineEnvironment({
    name: "sums",
    scenarios: { train: (index): Sum => ({ a: index, b: 1 }), eval: [{ a: 1, b: 2 }] },
    async rollout({ a, b }, { policy, sampling }) {
      expectTypeOf(a).toBeNumber();
      const t = trajectory({ messages: [{ role: "user", content: `${a}+${b}=` }] });
      await t.sample(policy, { maxCompletionTokens: 8, ...sampling });
      return t;
    },
    rewards: [
      function exact({ scenario, text }) {
        expectTypeOf(scenario).toEqualTypeOf<Sum>();
        return text === String(scenario.a + scenario.b);
      },
      {
        name: "near",
        score: ({ scenario, text }) => {
          expectTypeOf(scenario).toEqualTypeOf<Sum>();
          return -Math.abs(Number(text) - scenario.a - scenario.b);
        },
      },
      weighted(
        0.5,
        reward("short", ({ scenario, text }: RewardInput<Sum>) => text.length <= String(scenario.a).length),
      ),
      reward("any", ({ text }) => text.length),
    ],
    gold: ({ a, b }) => String(a + b),
  });
  expectTypeOf(environment).toEqualTypeOf<Environment<Sum>>();
});

it("refuses a reward for other scenarios", () => {
  const spelled = reward("exact", ({ scenario, text }: RewardInput<{ readonly word: string }>) => text === scenario.word);
  defineEnvironment({
    name: "sums",
    scenarios: { train: [{ a: 1, b: 2 }], eval: [] },
    rollout: async () => trajectory({ messages: [] }),
    // @ts-expect-error the scenarios have no `word`
    rewards: [spelled],
  });
});

it("accepts environments of different scenarios as tasks of one run, and only environments", () => {
  const environmentOf = <S>(scenario: S) =>
    defineEnvironment<S>({
      name: "one",
      scenarios: { train: [scenario], eval: [] },
      rollout: async () => trajectory({ messages: [] }),
      rewards: [reward("text", ({ scenario: own, text }: RewardInput<S>) => text === String(own))],
    });
  const environments = [{ environment: environmentOf({ a: 1, b: 2 }), weight: 2 }, { environment: environmentOf("text") }];
  expectTypeOf(environments).toExtend<TrainRlOptions<unknown>["environment"]>();
  expectTypeOf([{ environment: { name: "one" } }]).not.toExtend<TrainRlOptions<unknown>["environment"]>();
});
