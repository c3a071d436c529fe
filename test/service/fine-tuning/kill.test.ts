import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import OpenAI from "openai";
import { expect, test } from "vitest";
import { builtProgram } from "../../support/built-program.ts";
import { chatLines, restartable, startTestService, type TestService } from "../support.ts";
import { clientOf, createJob, finished, reinforcement, rowsOf, supervised, upload } from "./support.ts";
import { variedScript } from "./varied-script.ts";

const SETTINGS = { seed: 9, examples: 4, method: supervised({ batch_size: 1, n_epochs: 3, learning_rate_multiplier: 10 }) } as const;

/** Everything that a job leaves: files of its checkpoints, metrics of its steps, and its results in the client's form without identifiers and times. */
async function results({ service }: TestService, client: OpenAI, id: string) {
  const job = await finished(client, id);
  const root = join(service.dataDir, "checkpoints");
  const files: Record<string, string> = {};
  for (const path of (await readdir(root, { recursive: true })).toSorted()) {
    const name = path.split("/").slice(1).join("/");
    if (/\.\w+$/u.test(name)) files[name] = (await readFile(join(root, path))).toString("hex");
  }
  const checkpoints = (await client.fineTuning.jobs.checkpoints.list(id)).data;
  return {
    files,
    csv: await (await client.files.content(job.result_files[0]!)).text(),
    trainedTokens: job.trained_tokens,
    checkpoints: checkpoints.map(({ step_number: step, metrics }) => ({ step, metrics })),
    resultFiles: (await client.files.list({ purpose: "fine-tune-results" })).data.length,
  };
}

/** Methods, each with the creation of its job. */
const METHODS = {
  supervised: async (client: OpenAI) => createJob(client, { ...SETTINGS, validation_file: await upload(client, chatLines(2)) }),
  reinforcement: async (client: OpenAI) =>
    client.fineTuning.jobs.create({
      model: "tiny",
      seed: 9,
      training_file: await upload(client, rowsOf(4)),
      validation_file: await upload(client, rowsOf(2)),
      method: reinforcement({ batch_size: 2, n_epochs: 2 }),
    }),
};

/** Results of a job that nothing interrupts. */
async function undisturbed(method: keyof typeof METHODS): Promise<Results> {
  const service = await startTestService({ engine: { script: variedScript } });
  const client = clientOf(service);
  return results(service, client, (await METHODS[method](client)).id);
}

type Results = Awaited<ReturnType<typeof results>>;
const expected = new Map<keyof typeof METHODS, Results>();

// Progress is saved after the steps 3, 4, 6, 8 and 9, and a checkpoint right after the progress of the steps 4 and 8.
test.each<[keyof typeof METHODS, string, number]>([
  ["supervised", "optimStep", 3],
  ["supervised", "optimStep", 6],
  ["supervised", "optimStep", 10],
  ["supervised", "saveState", 2],
  ["supervised", "saveState", 3],
  ["supervised", "saveState", 6],
  ["supervised", "saveState", 8],
  // A step has 16 rollouts, then a validation with 2.
  ["reinforcement", "sample", 1],
  ["reinforcement", "sample", 25],
  ["reinforcement", "sample", 53],
  ["reinforcement", "publish", 4],
  ["reinforcement", "forwardBackward", 2],
  ["reinforcement", "optimStep", 3],
  ["reinforcement", "saveState", 1],
  ["reinforcement", "saveState", 4],
  ["reinforcement", "saveState", 6],
])(
  "a %s job whose service is killed in %s %i leaves the same bytes as an undisturbed one",
  async (method, verb, number) => {
    if (!expected.has(method)) expected.set(method, await undisturbed(method));
    const { bases, dataDir, start } = await restartable({ limits: { commitEverySteps: 3 } });
    const script = await builtProgram(new URL("../held-service.ts", import.meta.url));
    const child = spawn(process.execPath, [script, dataDir, JSON.stringify(bases), verb, String(number)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
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
      expect(await results(after, clientOf(after), id)).toEqual(expected.get(method));
    } finally {
      child.kill("SIGKILL");
    }
  },
  60_000,
);
