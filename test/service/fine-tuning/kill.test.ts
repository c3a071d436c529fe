import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import OpenAI from "openai";
import { expect, test } from "vitest";
import { builtProgram } from "../../support/built-program.ts";
import { testDatabase } from "../../support/postgres.ts";
import { chatLines, restartable, startTestService, type TestService } from "../support.ts";
import { clientOf, createJob, dpo, finished, pairs, reinforcement, rowsOf, supervised, upload } from "./support.ts";
import { variedScript } from "./varied-script.ts";

const SETTINGS = { seed: 9, examples: 4, method: supervised({ batch_size: 1, n_epochs: 3, learning_rate_multiplier: 10 }) } as const;

/** Everything that a job leaves: files of its checkpoints, metrics of its steps, and its results in the client's form without identifiers and times. */
async function results({ service }: TestService, client: OpenAI, id: string) {
  const job = await finished(client, id);
  const checkpoints = (await client.fineTuning.jobs.checkpoints.list(id)).data;
  const told = {
    csv: await (await client.files.content(job.result_files[0]!)).text(),
    trainedTokens: job.trained_tokens,
    checkpoints: checkpoints.map(({ step_number: step, metrics }) => ({ step, metrics })),
    resultFiles: (await client.files.list({ purpose: "fine-tune-results" })).data.length,
  };
  // The optimizer state of an older checkpoint is removed after the job has succeeded.
  await service.close();
  const root = join(service.dataDir, "checkpoints");
  const files: Record<string, string> = {};
  for (const path of (await readdir(root, { recursive: true })).toSorted()) {
    // On Postgres, the name of a checkpoint's directory ends with the fencing token.
    const name = path
      .split("/")
      .slice(1)
      .join("/")
      .replace(/^(\d+)-\d+\//u, "$1/");
    if (/\.\w+$/u.test(name)) files[name] = (await readFile(join(root, path))).toString("hex");
  }
  return { ...told, files };
}

/** Methods, each with the creation of its job. */
const METHODS = {
  supervised: async (client: OpenAI) => createJob(client, { ...SETTINGS, validation_file: await upload(client, chatLines(2)) }),
  dpo: async (client: OpenAI) =>
    client.fineTuning.jobs.create({
      model: "tiny",
      seed: 9,
      training_file: await upload(client, pairs(4)),
      validation_file: await upload(client, pairs(2)),
      method: dpo({ batch_size: 1, n_epochs: 3, learning_rate_multiplier: 10 }),
    }),
  reinforcement: async (client: OpenAI) =>
    client.fineTuning.jobs.create({
      model: "tiny",
      seed: 9,
      training_file: await upload(client, rowsOf(4)),
      validation_file: await upload(client, rowsOf(2)),
      method: reinforcement({ batch_size: 2, n_epochs: 2 }),
    }),
};

/** A call of the engine: the `number`-th of a verb. */
interface Call {
  readonly verb: string;
  readonly number: number;
}

/** Results of a job that nothing interrupts, and its calls of the engine after its creation. */
async function undisturbed(method: Method): Promise<{ readonly results: Results; readonly calls: readonly Call[] }> {
  const calls: Call[] = [];
  const record = ({ verb }: { readonly verb: string }) => {
    calls.push({ verb, number: calls.filter((call) => call.verb === verb).length + 1 });
    return Promise.resolve();
  };
  const service = await startTestService({ engine: { script: variedScript, before: record } });
  const client = clientOf(service);
  const { id } = await METHODS[method](client);
  const before = calls.length;
  return { results: await results(service, client, id), calls: calls.slice(before) };
}

type Method = keyof typeof METHODS;
type Results = Awaited<ReturnType<typeof results>>;
const runs = new Map<Method, ReturnType<typeof undisturbed>>();

/** Returns the run of a method that nothing interrupts. */
function runOf(method: Method): ReturnType<typeof undisturbed> {
  const run = runs.get(method) ?? undisturbed(method);
  runs.set(method, run);
  return run;
}

/** Leaves what a job of the method leaves if its service is killed in a call of the engine, and started again. */
async function killed(method: Method, { verb, number }: Call): Promise<Results> {
  const { bases, dataDir, start } = await restartable({ limits: { commitEverySteps: 3, jobLeaseMs: 2000 } });
  const script = await builtProgram(new URL("../held-service.ts", import.meta.url));
  const child = spawn(
    process.execPath,
    [script, dataDir, JSON.stringify(bases), verb, String(number), testDatabase(dataDir).database ?? ""],
    {
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  const exited = once(child, "exit");
  try {
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const { url, apiKey } = JSON.parse((await lines.next()).value as string) as { url: string; apiKey: string };
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
    const { id } = await METHODS[method](client);
    expect((await lines.next()).value).toBe("held");
    child.kill("SIGKILL");
    await exited;
    const after = await start({ script: variedScript });
    return await results(after, clientOf(after), id);
  } finally {
    child.kill("SIGKILL");
  }
}

const TIMEOUT_MS = 120_000;

/** Kills per method, spread over all calls of the engine; none by default. */
const KILLS = Number(process.env["WHETSTONE_KILLS"] ?? 0);

type Point = readonly [method: Method, verb: string, number: number];

// Progress is saved after the steps 3, 4, 6, 8 and 9, and a checkpoint right after the progress of the steps 4 and 8.
const POINTS: readonly Point[] = [
  ["supervised", "optimStep", 10],
  ["supervised", "saveState", 2],
  ["supervised", "saveState", 3],
  ["supervised", "saveState", 8],
  ["dpo", "saveState", 5],
  // A step has 16 rollouts, then a validation with 2.
  ["reinforcement", "sample", 25],
  ["reinforcement", "sample", 53],
  ["reinforcement", "publish", 4],
  ["reinforcement", "optimStep", 3],
  ["reinforcement", "saveState", 4],
];
/** Further points, with `WHETSTONE_KILLS`. */
const MORE_POINTS: readonly Point[] = [
  ["supervised", "optimStep", 3],
  ["supervised", "optimStep", 6],
  ["supervised", "saveState", 6],
  ["dpo", "optimStep", 5],
  ["reinforcement", "sample", 1],
  ["reinforcement", "forwardBackward", 2],
  ["reinforcement", "saveState", 1],
  ["reinforcement", "saveState", 6],
];

test.each(KILLS > 0 ? [...POINTS, ...MORE_POINTS] : POINTS)(
  "a %s job whose service is killed in %s %i leaves the same bytes as an undisturbed one",
  async (method, verb, number) => {
    expect(await killed(method, { verb, number })).toEqual((await runOf(method)).results);
  },
  TIMEOUT_MS,
);

test.each((Object.keys(METHODS) as Method[]).flatMap((method) => Array.from({ length: KILLS }, (_, index) => [method, index] as const)))(
  "a %s job whose service is killed in a call of the engine, %i, leaves the same bytes as an undisturbed one",
  async (method, index) => {
    const { results: expected, calls } = await runOf(method);
    expect(await killed(method, calls[Math.floor(((index + 0.5) * calls.length) / KILLS)]!)).toEqual(expected);
  },
  TIMEOUT_MS,
);
