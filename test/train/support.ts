/** Training runs against a whole service with the scripted engine: rollouts are a function of seed and weights, training is exact. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { defineEnvironment, reward, type Environment } from "../../src/library/environment/index.ts";
import { connect, trajectory, type Model, type Service } from "../../src/index.ts";
import type { ScriptedEngineOptions } from "../../src/testing/index.ts";
import { trainRl, type RecordedEvent, type TrainingRun, type TrainRlOptions } from "../../src/training/train/index.ts";
import { startTestService, temporaryDirectory, testBase } from "../service/support.ts";

export interface Scenario {
  readonly id: string;
}

/** Samples two tokens. The first determines the reward, and depends on the seed and, through the weight, on all earlier training. */
export const script: NonNullable<ScriptedEngineOptions["script"]> = ({ params, weight, prompt }) => {
  const drift = Math.abs(Math.round(weight * 1e6)) % 7;
  return [40 + ((Number(params.seed % 1009n) + drift + prompt.length) % 60), 41];
};

export const environment: Environment<Scenario> = defineEnvironment<Scenario>({
  name: "tokens",
  scenarios: { train: (index) => ({ id: `train-${index}` }), eval: [{ id: "eval-0" }, { id: "eval-1" }] },
  async rollout({ id }, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: id }] });
    await t.sample(policy, { maxCompletionTokens: 2, ...sampling });
    return t;
  },
  rewards: [reward("first", ({ trajectory: { choices } }) => (choices[0]?.token_ids?.[0] ?? 0) / 100)],
});

export interface SetUp {
  readonly service: Service;
  readonly model: Model;
  readonly runDir: string;
  /** Ends the service, but not its client. */
  readonly stopService: () => Promise<void>;
}

export async function setUp(engine: ScriptedEngineOptions = {}): Promise<SetUp> {
  const running = await startTestService({ engine: { script, ...engine, bases: await testBase() } });
  const service = await connect({ baseUrl: running.service.url, apiKey: running.service.apiKey, maxRetries: 1 });
  onTestFinished(() => service.close());
  const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny" });
  const stopService = () => running.service.close({ graceMs: 0 });
  return { service, model, runDir: join(await temporaryDirectory(), "run"), stopService };
}

export function start({ model, runDir }: Pick<SetUp, "model" | "runDir">, options: Partial<TrainRlOptions<Scenario>> = {}): TrainingRun {
  return trainRl({ model, environment, steps: 3, scenariosPerStep: 2, groupSize: 3, runDir, report: false, ...options });
}

export async function readLines(runDir: string, name: string): Promise<any[]> {
  const text = await readFile(join(runDir, name), "utf8");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as unknown);
}

/** Rows of `metrics.jsonl` without what depends on the clock. */
export async function timelessMetrics(runDir: string): Promise<object[]> {
  const rows = await readLines(runDir, "metrics.jsonl");
  return rows.map((row: object) =>
    Object.fromEntries(Object.entries(row).filter(([name]) => name !== "time" && !name.startsWith("time/"))),
  );
}

export async function recorded(run: TrainingRun): Promise<RecordedEvent[]> {
  const events: RecordedEvent[] = [];
  for await (const event of run) if (event.seq !== null) events.push(event as RecordedEvent);
  return events;
}
