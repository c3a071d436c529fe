/**
 * Service processes on one data directory, of which one after the other is killed at a random moment and started again, while jobs train and
 * rollouts are leased and delivered: two processes on a Postgres database, or one on SQLite. `WHETSTONE_KILLS=40` sets the number of kills, and
 * `WHETSTONE_KILL_SEED` the moments.
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { missingPostgres, temporarySchema } from "../support/postgres.ts";
import { type KilledServices, startServices } from "./killed-services.ts";
import { PLANS, playAll } from "./rollout-player.ts";
import {
  ARTIFACTS,
  BASE,
  finishedEvents,
  type JobEvent,
  MODELS,
  RL_JOBS,
  rollOut,
  send,
  type SharedService,
  SFT_JOBS,
  startShared,
  temporaryDirectory,
  uploadExamples,
  withoutTimes,
} from "./support.ts";

const KILLS = Number(process.env["WHETSTONE_KILLS"] ?? 1);
const SEED = Number(process.env["WHETSTONE_KILL_SEED"] ?? Date.now() % 1_000_000);
const STEPS = 10;
const BATCH = 4;
/** Rollouts per kill, so that some are leased during each. */
const ROLLOUTS = 12 * KILLS;

/** Models: name, which determines the first weights of an adapter, and adapter; null trains all weights. */
const KINDS: readonly [Kind, Kind] = [
  { name: "full", lora: null },
  { name: "adapter", lora: { rank: 4 } },
];

interface Kind {
  readonly name: string;
  readonly lora: object | null;
}

type Send = (method: string, path: string, body?: object) => Promise<any>;

/** Jobs of one model, in order. */
interface Trained {
  readonly modelId: string;
  readonly jobIds: string[];
}

/** Adds an SFT job of several steps and an RL job to the queue of a model. */
async function addRound(request: Send, { modelId, jobIds }: Trained, { url, groups }: Data): Promise<void> {
  const sft = await request("POST", SFT_JOBS, {
    model_id: modelId,
    training_data_url: url,
    config: { batch_size: BATCH, learning_rate: 1e-3 },
    experimental_config: { shuffle_seed: jobIds.length },
  });
  const rl = await request("POST", RL_JOBS, {
    model_id: modelId,
    trajectory_groups: groups,
    experimental_config: { learning_rate: 1e-3 },
  });
  jobIds.push(sft.id, rl.id);
}

interface Data {
  readonly url: string;
  readonly groups: readonly object[];
}

/** Creates a model: all weights, or an adapter. */
async function newModel(request: Send, { name, lora }: Kind): Promise<Trained> {
  return { modelId: (await request("POST", MODELS, { project: "demo", name, base_model: BASE, lora })).id, jobIds: [] };
}

/** Bytes of the newest checkpoint by file name. */
async function newestState(dataDir: string, modelId: string): Promise<Record<string, string>> {
  const parent = join(dataDir, "checkpoints", modelId);
  const steps = (await readdir(parent)).toSorted((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10));
  const newest = join(parent, steps.at(-1) ?? "");
  const names = (await readdir(newest)).filter((name) => name.endsWith(".safetensors")).toSorted();
  return Object.fromEntries(await Promise.all(names.map(async (name) => [name, (await readFile(join(newest, name))).toString("base64")])));
}

const content = (events: readonly JobEvent[]) => events.map(({ type, data }) => [type, withoutTimes(data)]);

/** Kills one process after the other until `count` kills, and adds jobs whenever a model has no unfinished one. */
async function killAll(killed: KilledServices, models: readonly Trained[], data: Data): Promise<void> {
  for (let kill = 0; kill < KILLS; kill++) {
    for (const model of models) {
      const last = model.jobIds.at(-1);
      const isOver = last === undefined || (await killed.request("GET", `${RL_JOBS}/${last}`)).status === "succeeded";
      if (isOver) await addRound((...given) => killed.request(...given), model, data);
    }
    await sleep(killed.random() * 1500);
    await killed.killOne();
  }
}

/** The service of all tests that is not killed, and the groups that it has sampled. */
let calm: SharedService;
let groups: readonly object[];
beforeAll(async () => {
  calm = await startShared();
  groups = await Promise.all([0, 1].map((index) => rollOut(calm.service, `Write about the number ${index}.`, { n: 4 })));
});
afterAll(() => calm.end());

/** A model of the service that is not killed: the events of its jobs, and its newest checkpoint after each number of jobs. */
interface Undisturbed {
  readonly model: Trained;
  readonly events: JobEvent[][];
  readonly states: Map<number, Record<string, string>>;
}

const undisturbed = new Map<Kind, Undisturbed>();

/** Returns the undisturbed model of a kind after so many jobs, which are run unless an earlier test has done so. */
async function undisturbedModel(kind: Kind, jobs: number): Promise<Undisturbed> {
  const request: Send = (...given) => send(calm.service, ...given);
  const found: Undisturbed = undisturbed.get(kind) ?? { model: await newModel(request, kind), events: [], states: new Map() };
  undisturbed.set(kind, found);
  const { model, events, states } = found;
  const data = { url: await uploadExamples(calm.service, STEPS * BATCH), groups };
  while (events.length < jobs) {
    await addRound(request, model, data);
    for (const id of model.jobIds.slice(events.length)) events.push(await finishedEvents(calm.service, id));
    states.set(events.length, await newestState(calm.dataDir, model.modelId));
  }
  return found;
}

/** Databases, with the reason why one is skipped. */
const DATABASES = [
  { processes: "two processes on Postgres", database: () => temporarySchema(), missing: missingPostgres },
  { processes: "a process on SQLite", database: () => null, missing: null },
];

for (const { processes, database, missing } of DATABASES)
  test.skipIf(missing !== null)(
    `${KILLS} kills of ${processes} lose nothing acknowledged and repeat no training step (seed ${SEED})${missing === null ? "" : `: ${missing}`}`,
    { timeout: 120_000 + KILLS * 20_000 },
    async () => {
      const dataDir = await temporaryDirectory();
      const killed = await startServices({ dataDir, database: database(), seed: SEED });
      const request: Send = (...given) => killed.request(...given);
      const data = { url: await uploadExamples(killed.services[0]!, STEPS * BATCH), groups };
      const models = [await newModel(request, KINDS[0]), await newModel(request, KINDS[1])];
      const plan = await request("POST", PLANS, {
        environment: "letters",
        environment_hash: "a".repeat(64),
        policy: "tiny",
        group_size: 2,
        seed: 1,
        max_leases: 1000,
      });
      await request("POST", `${PLANS}/${plan.id}/groups`, {
        groups: Array.from({ length: ROLLOUTS / 2 }, (_, group) => ({ group, scenario: { group } })),
      });
      const acknowledged = { artifacts: new Map<string, string>(), isOver: false };
      const playing = playAll(killed, plan.id);
      const writing = writeArtifacts(killed, acknowledged);

      await killAll(killed, models, data);
      acknowledged.isOver = true;
      await writing;
      const delivered = await playing;

      // Every acknowledged delivery is the outcome of its task, and every task finished once.
      const finished: any[] = [];
      for (let isComplete = false; !isComplete;) {
        const page = (await request("GET", `${PLANS}/${plan.id}/finished?after=${finished.length}&limit=1000`)).data;
        finished.push(...page);
        isComplete = page.length === 0;
      }
      expect(finished.map((task: any) => task.finished)).toEqual(Array.from({ length: ROLLOUTS }, (_, index) => index + 1));
      expect(new Set(finished.map((task: any) => task.id)).size).toBe(ROLLOUTS);
      for (const [id, reward] of delivered)
        expect((await request("GET", `/v1/preview/rollout-tasks/${id}/outcome`)).trajectory.reward, `the delivery of ${id}`).toBe(reward);
      // Every acknowledged artifact has its contents.
      for (const [id, text] of acknowledged.artifacts)
        expect(await killed.text(`${ARTIFACTS}/${id}/files/text.txt`), `the artifact ${id}`).toBe(text);

      // The same jobs without a kill: the same events, each once, and the same bytes.
      for (const [index, { modelId, jobIds }] of models.entries()) {
        const expected = await undisturbedModel(KINDS[index]!, jobIds.length);
        for (const [at, id] of jobIds.entries()) {
          const disturbed = await killed.finishedEvents(id);
          expect(content(disturbed), `job ${at} of model ${index}`).toEqual(content(expected.events[at]!));
          expect(new Set(disturbed.map((event) => event.id)).size).toBe(disturbed.length);
        }
        expect(await newestState(dataDir, modelId)).toEqual(expected.states.get(jobIds.length));
      }
    },
  );

/** Writes artifacts until `isOver`, and records the acknowledged ones. */
async function writeArtifacts(
  killed: KilledServices,
  acknowledged: { readonly artifacts: Map<string, string>; isOver: boolean },
): Promise<void> {
  for (let count = 0; !acknowledged.isOver; count++) {
    const { id } = await killed.request("POST", ARTIFACTS, { project: "demo", name: "kept" });
    const text = `contents ${count}`;
    await killed.put(`${ARTIFACTS}/${id}/files/text.txt`, text);
    acknowledged.artifacts.set(id, text);
    await sleep(50);
  }
}
