/** Environment of rollouts.bench.ts: a rollout waits, samples one answer, and has a reward of 1. */
import { setTimeout as sleep } from "node:timers/promises";
import { trajectory } from "whetstone";
import { defineEnvironment } from "whetstone/environment";

export default defineEnvironment<{ readonly waitMs: number }>({
  name: "waits",
  scenarios: { train: () => ({ waitMs: 300 }), eval: [] },
  async rollout({ waitMs }, { policy, sampling, signal }) {
    await sleep(waitMs, undefined, { signal });
    const t = trajectory({ messages: [{ role: "user", content: "hello" }] });
    await t.sample(policy, { maxCompletionTokens: 8, ...sampling });
    return t;
  },
  rewards: [{ name: "one", score: () => 1 }],
});
