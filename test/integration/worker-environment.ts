/** An environment for workers in processes of their own. Each trajectory has its seed as metadata. */
import { setTimeout as sleep } from "node:timers/promises";
import { defineEnvironment } from "whetstone/environment";
import { trajectory } from "whetstone";

export default defineEnvironment<{ readonly id: string; readonly waitMs: number }>({
  name: "waiting",
  scenarios: { train: (index) => ({ id: `train-${index}`, waitMs: 50 }), eval: [] },
  async rollout({ id, waitMs }, { policy, sampling, seed, signal }) {
    await sleep(waitMs, undefined, { signal });
    const t = trajectory({ messages: [{ role: "user", content: id }], metadata: { seed } });
    await t.sample(policy, { maxCompletionTokens: 4, ...sampling });
    return t;
  },
  rewards: [{ name: "length", score: ({ text }) => text.length / 16 }],
});
