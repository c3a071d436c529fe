/** Jobs that are killed after each optimizer step and resumed with another number of threads. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type Address,
  BASE,
  finishedEvents,
  MODELS,
  PREFERENCE_JOBS,
  RL_JOBS,
  rollOut,
  send,
  type SharedService,
  SFT_JOBS,
  startProcess,
  startShared,
  temporaryDirectory,
  uploadExamples,
  uploadPairs,
  withoutTimes,
} from "./support.ts";

/** Optimizer steps of the SFT job: progress is committed after the fourth. */
const STEPS = 6;
/** Steps after which the SFT job is killed: before and after that commit; with `WHETSTONE_KILLS` set, every step. */
const KILL_AFTER = process.env["WHETSTONE_KILLS"] === undefined ? [3] : Array.from({ length: STEPS }, (_, index) => index + 1);
const THREADS = [1, 2] as const;
/** Optimizer steps from one commit to the next. */
const COMMIT_EVERY_STEPS = 4;
const [FULL, ADAPTER] = ["model.safetensors", "adapter_model.safetensors"];

type Work = { readonly modelId: string; readonly jobId: string };
type Begin = (service: Address) => Promise<Work>;

/** Creates a model, whose name determines the first weights of an adapter. */
async function createModel(service: Address, name: string, lora: object | null): Promise<string> {
  return (await send(service, "POST", MODELS, { project: "demo", name, base_model: BASE, lora })).id;
}

const sft: Begin = async (service) => {
  const modelId = await createModel(service, "sft", null);
  const { id: jobId } = await send(service, "POST", SFT_JOBS, {
    model_id: modelId,
    training_data_url: await uploadExamples(service, 2 * STEPS + 3),
    config: { batch_size: 4, learning_rate: 1e-3, assistant_turns: "last" },
    experimental_config: {
      epochs: 2,
      shuffle_seed: 3,
      learning_rate_schedule: "cosine",
      warmup_steps: 2,
      validation_split: 0.2,
      validation_every: 2,
    },
  });
  return { modelId, jobId };
};

const preferences =
  (lora: object | null, config: object): Begin =>
  async (service) => {
    const modelId = await createModel(service, lora === null ? "preferences" : "preferences-adapter", lora);
    const { id: jobId } = await send(service, "POST", PREFERENCE_JOBS, {
      model_id: modelId,
      training_data_url: await uploadPairs(service, 2 * STEPS + 3),
      config: { batch_size: 4, learning_rate: 1e-3, epochs: 2, shuffle_seed: 3, validation_split: 0.2, validation_every: 2, ...config },
    });
    return { modelId, jobId };
  };

/** The newest checkpoint's weights and moments. */
async function stateOf(service: Address, dataDir: string, { modelId }: Work, weights: string): Promise<Buffer[]> {
  const { step } = await send(service, "GET", `${MODELS}/${modelId}/checkpoints/latest`);
  const path = join(dataDir, "checkpoints", modelId, String(step));
  return Promise.all([weights, "optimizer.safetensors"].map((name) => readFile(join(path, name))));
}

const timeless = (events: readonly { readonly type: string; readonly data: object }[]) =>
  events.map(({ type, data }) => [type, withoutTimes(data)]);

/** Work of one kind, and the optimizer steps after which its service is killed. */
interface Kind {
  readonly begin: Begin;
  readonly steps: number;
  readonly killAfter: readonly number[];
  /** File name of the weights. */
  readonly weights: string;
}

/** The service of all tests that is not killed. */
let calm: SharedService;
beforeAll(async () => {
  calm = await startShared({ threads: THREADS[0], commitEverySteps: COMMIT_EVERY_STEPS });
});
afterAll(() => calm.end());

/** Returns the events, weights and moments of the work on the service that is not killed. */
async function undisturbed({ begin, weights }: Kind) {
  const work = await begin(calm.service);
  const events = timeless(await finishedEvents(calm.service, work.jobId));
  return { events, state: await stateOf(calm.service, calm.dataDir, work, weights) };
}

/** Returns the remaining optimizer steps of a job whose service was killed directly after step `haltAt`: it resumes from the last commit. */
const stepsLeft = (steps: number, haltAt: number) => steps - Math.floor((haltAt - 1) / COMMIT_EVERY_STEPS) * COMMIT_EVERY_STEPS;

/**
 * Runs the work on the service that is not killed, and on services that are killed after a step, and compares the results. The process that
 * finishes the work of one kind is killed after a step of the next kind.
 */
async function surviveKills(kinds: readonly Kind[]): Promise<void> {
  const expected = new Map<Kind, Awaited<ReturnType<typeof undisturbed>>>();
  for (const kind of kinds) expected.set(kind, await undisturbed(kind));
  const rounds = Math.max(...kinds.map(({ killAfter }) => killAfter.length));
  for (let round = 0; round < rounds; round++) {
    const killed = kinds.filter(({ killAfter }) => round < killAfter.length);
    const dataDir = await temporaryDirectory();
    const shared = { commitEverySteps: COMMIT_EVERY_STEPS };
    // Consecutive processes have different numbers of threads.
    const threadsOf = (process: number) => THREADS[(killed[0]!.killAfter[round]! + process) % 2]!;
    let service = await startProcess(dataDir, { ...shared, threads: threadsOf(0), haltAt: killed[0]!.killAfter[round]! });
    for (const [index, kind] of killed.entries()) {
      const haltAt = kind.killAfter[round]!;
      const work = await kind.begin(service);
      await service.halted();
      await service.kill();
      const next = killed[index + 1]?.killAfter[round];
      const settings = next === undefined ? {} : { haltAt: stepsLeft(kind.steps, haltAt) + next };
      service = await startProcess(dataDir, { ...shared, threads: threadsOf(index + 1), ...settings });
      const { events, state } = expected.get(kind)!;
      expect(timeless(await finishedEvents(service, work.jobId)), `events, killed after step ${haltAt}`).toEqual(events);
      const survived = await stateOf(service, dataDir, work, kind.weights);
      survived.forEach((bytes, at) => expect(bytes.equals(state[at]!), `state, killed after step ${haltAt}`).toBe(true));
    }
    await service.kill();
  }
}

test("an SFT job that is killed after a step ends with the same weights and moments", { timeout: 240_000 }, () =>
  surviveKills([{ begin: sft, steps: STEPS, killAfter: KILL_AFTER, weights: FULL }]),
);

test(
  "a preference job that is killed before and after a commit ends with the same weights and moments: all weights, and an adapter",
  { timeout: 240_000 },
  () =>
    surviveKills([
      { begin: preferences(null, {}), steps: STEPS, killAfter: KILL_AFTER, weights: FULL },
      {
        begin: preferences({ rank: 4 }, { reference_step: "start", length_normalization: true, label_smoothing: 0.1 }),
        steps: STEPS,
        killAfter: [5],
        weights: ADAPTER,
      },
    ]),
);

test(
  "an RL job that is killed after its step ends with the same weights and moments: plain loss, and two passes with an adapter",
  { timeout: 240_000 },
  async () => {
    const groups = await Promise.all(["one", "two"].map((word) => rollOut(calm.service, `Say ${word}.`, { n: 4 })));
    const rl =
      (lora: object | null, config: object): Begin =>
      async (service) => {
        const modelId = await createModel(service, lora === null ? "rl" : "rl-adapter", lora);
        const body = { model_id: modelId, trajectory_groups: groups, experimental_config: { learning_rate: 1e-3, ...config } };
        return { modelId, jobId: (await send(service, "POST", RL_JOBS, body)).id };
      };
    await surviveKills([
      { begin: rl(null, {}), steps: 1, killAfter: [1], weights: FULL },
      {
        begin: rl({ rank: 4 }, { importance_sampling_level: "sequence", kl_penalty_coef: 0.1 }),
        steps: 1,
        killAfter: [1],
        weights: ADAPTER,
      },
    ]);
  },
);
