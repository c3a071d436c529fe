/**
 * An environment that is validated without a model, evaluated with a model, and rescored with other rewards. Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/environment-evaluate.ts
 *
 * Prints the findings of `validate`, the mean reward with its interval, pass@1 and pass@4, each reward, and the rewards after `rescore`.
 */
import { connect, trajectory } from "whetstone";
import { defineEnvironment, evaluate, rescore, similarityReward, validate, weighted } from "whetstone/environment";

const texts = "stone water light green garden mountain crocodile hippopotamus understanding transformation";
const words = texts.split(" ").map((word) => ({ id: word, word }));

const environment = defineEnvironment({
  name: "countdown",
  scenarios: { train: words.slice(0, 4), eval: words.slice(4) },
  async rollout({ word }, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: `Number the letters of ${word} down to 1.` }] });
    await t.sample(policy, { maxCompletionTokens: 24, ...sampling });
    return t; // unfinished: scoring adds the rewards and finishes it
  },
  rewards: [
    { name: "exact", weight: 0.8, score: ({ scenario, text }) => text === numbered(scenario) },
    weighted(0.2, similarityReward(numbered)),
  ],
  gold: numbered,
});

const { isValid, findings } = await validate(environment);
console.log({ isValid, findings });

const service = await connect();
const model = await service.models.create({ project: "demo", name: "countdown", baseModel: "whetstone-tiny", returnExisting: true });
const policy = await model.policy(0);

const report = await evaluate(environment, policy, { samples: 4, temperature: 1 });
console.log(`reward ${report.reward.mean.toFixed(3)}, 95 % interval ${report.reward.low.toFixed(3)} to ${report.reward.high.toFixed(3)}`);
for (const { k, mean } of report.passAtK) console.log(`pass@${k} ${mean.toFixed(3)}`);
for (const [name, { mean }] of Object.entries(report.rewards)) console.log(name, mean.toFixed(3));

const lenient = defineEnvironment({ ...environment, rewards: [{ name: "long", score: ({ text }) => text.length >= 20 }] });
const again = await rescore(lenient, report.groups);
console.log(
  "scored again",
  again.map((group) => group.rewards),
);
await service.close();

function numbered({ word }: { readonly word: string }): string {
  return Array.from(word, (letter, index) => `${letter}${word.length - index}`).join("");
}
