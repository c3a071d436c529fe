import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { defineEnvironment, reward } from "whetstone/environment";
import { sweep, type SweepResult } from "whetstone/experiment";
import { trajectory, type Service } from "whetstone";
import { trainRl, type RunEvent } from "whetstone/train";

const environment = defineEnvironment<{ readonly id: string }>({
  name: "tokens",
  scenarios: { train: (index) => ({ id: `train-${index}` }), eval: [{ id: "eval-0" }, { id: "eval-1" }] },
  async rollout({ id }, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: id }] });
    await t.sample(policy, { maxCompletionTokens: 2, ...sampling });
    return t;
  },
  rewards: [reward("first", ({ trajectory: { choices } }) => (choices[0]?.token_ids?.[0] ?? 0) / 100)],
});

/** Sweeps two-step training runs over three group sizes, and appends the name of each started cell to the file `starts`. */
export function trainingSweep(
  service: Service,
  dir: string,
  onEvent: (cell: string, event: RunEvent) => void = () => undefined,
): Promise<SweepResult<{ readonly groupSize: number }, unknown>> {
  return sweep({
    dir,
    grid: { groupSize: [2, 3, 4] },
    async run({ name, dir: runDir, settings, seed, signal }) {
      appendFileSync(join(dir, "starts"), `${name}\n`);
      const model = await service.models.create({ project: "sweep", name, baseModel: "tiny", returnExisting: true });
      const evaluation = { every: 2 };
      const run = trainRl({
        model,
        environment,
        runDir,
        ...settings,
        seed,
        steps: 2,
        scenariosPerStep: 1,
        evaluation,
        report: false,
        signal,
      });
      for await (const event of run) onEvent(name, event);
      return (await run.done).evaluation;
    },
  });
}
