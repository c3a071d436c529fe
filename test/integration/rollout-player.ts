/** Workers that lease and deliver all rollouts of a plan through processes that are killed meanwhile. */
import type { KilledServices } from "./killed-services.ts";

export const PLANS = "/v1/preview/rollout-plans";
const TASKS = "/v1/preview/rollout-tasks";
const WORKERS = 2;

/** Plays until every task of the plan is finished. Returns the rewards of the acknowledged deliveries by task. */
export async function playAll(killed: KilledServices, planId: string): Promise<ReadonlyMap<string, number>> {
  const acknowledged = new Map<string, number>();
  let deliveries = 0;
  const play = async (worker: string): Promise<void> => {
    for (;;) {
      const request = { worker, environments: [{ name: "letters", hash: "a".repeat(64) }], max: 2, lease_seconds: 2, wait: 1 };
      const { data } = await killed.request("POST", `${TASKS}/lease`, request);
      for (const { id, lease_token: token } of data) {
        // Each delivery has a reward of its own, which identifies its outcome.
        const reward = ++deliveries;
        const { status, text } = await killed.call("PUT", `${TASKS}/${id}/outcome?lease_token=${token}`, outcomeOf(reward));
        if (status === 200) {
          if (acknowledged.has(id)) throw new Error(`Task ${id} was delivered twice`);
          acknowledged.set(id, reward);
        } else if (status !== 409) throw new Error(`Expected the delivery of task ${id} to be accepted or lost, got ${status}: ${text}`);
      }
      const plan = await killed.request("GET", `${PLANS}/${planId}`);
      if (plan.finished === plan.tasks) return;
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, (_, index) => play(`worker ${index}`)));
  return acknowledged;
}

function outcomeOf(reward: number): object {
  return {
    trajectory: {
      messages_and_choices: [
        { role: "user", content: "a" },
        { role: "assistant", content: "b" },
      ],
      reward,
    },
  };
}
