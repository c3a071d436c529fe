/** Jobs that are killed after each optimizer step and resumed with another number of threads. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  type Address,
  BASE,
  finishedEvents,
  MODELS,
  PREFERENCE_JOBS,
  RL_JOBS,
  rollOut,
  send,
  SFT_JOBS,
  startProcess,
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

type Work = { readonly modelId: string; readonly jobId: string };
type Begin = (service: Address) => Promise<Work>;

async function createModel(service: Address, lora: object | null): Promise<string> {
  const name = lora === null ? "killed" : "killed-adapter";
  return (await send(service, "POST", MODELS, { project: "demo", name, base_model: BASE, lora })).id;
}

const sft =
  (lora: object | null): Begin =>
  async (service) => {
    const modelId = await createModel(service, lora);
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
    const modelId = await createModel(service, lora);
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

interface Calm {
  readonly service: Address;
  readonly dataDir: string;
}

/** Starts a service that is not killed before the end of the test. */
async function startCalm(): Promise<Calm> {
  const dataDir = await temporaryDirectory();
  return { dataDir, service: await startProcess(dataDir, { threads: THREADS[0] }) };
}

/** Runs the work in peace, then once for each step after which it is killed; all must end alike. */
async function surviveKills(calm: Calm, begin: Begin, steps: readonly number[], weights: string): Promise<void> {
  const expected = await begin(calm.service);
  const events = timeless(await finishedEvents(calm.service, expected.jobId));
  const state = await stateOf(calm.service, calm.dataDir, expected, weights);
  for (const haltAt of steps) {
    const dataDir = await temporaryDirectory();
    const [before, after] = haltAt % 2 === 0 ? THREADS : [THREADS[1], THREADS[0]];
    const mortal = await startProcess(dataDir, { threads: before, haltAt });
    const work = await begin(mortal);
    await mortal.halted();
    await mortal.kill();
    const service = await startProcess(dataDir, { threads: after });
    expect(timeless(await finishedEvents(service, work.jobId)), `events, killed after step ${haltAt}`).toEqual(events);
    const survived = await stateOf(service, dataDir, work, weights);
    survived.forEach((bytes, index) => expect(bytes.equals(state[index]!), `state, killed after step ${haltAt}`).toBe(true));
    await service.kill();
  }
}

test("an SFT job that is killed after a step ends with the same weights and moments", { timeout: 240_000 }, async () =>
  surviveKills(await startCalm(), sft(null), KILL_AFTER, "model.safetensors"),
);

test(
  "a preference job that is killed before and after a commit ends with the same weights and moments: all weights, and an adapter",
  { timeout: 240_000 },
  async () => {
    const calm = await startCalm();
    await surviveKills(calm, preferences(null, {}), KILL_AFTER, "model.safetensors");
    await surviveKills(
      calm,
      preferences({ rank: 4 }, { reference_step: "start", length_normalization: true, label_smoothing: 0.1 }),
      [5],
      "adapter_model.safetensors",
    );
  },
);

test(
  "an RL job that is killed after its step ends with the same weights and moments: plain loss, and two passes with an adapter",
  {
    timeout: 240_000,
  },
  async () => {
    const calm = await startCalm();
    const groups = await Promise.all(["one", "two"].map((word) => rollOut(calm.service, `Say ${word}.`, { n: 4 })));
    const rl =
      (lora: object | null, config: object): Begin =>
      async (service) => {
        const modelId = await createModel(service, lora);
        const body = { model_id: modelId, trajectory_groups: groups, experimental_config: { learning_rate: 1e-3, ...config } };
        return { modelId, jobId: (await send(service, "POST", RL_JOBS, body)).id };
      };
    await surviveKills(calm, rl(null, {}), [1], "model.safetensors");
    await surviveKills(
      calm,
      rl({ rank: 4 }, { importance_sampling_level: "sequence", kl_penalty_coef: 0.1 }),
      [1],
      "adapter_model.safetensors",
    );
  },
);
