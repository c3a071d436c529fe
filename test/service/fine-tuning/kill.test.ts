import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import OpenAI from "openai";
import { expect, test } from "vitest";
import { builtProgram } from "../../support/built-program.ts";
import { chatLines, restartable, startTestService, type TestService } from "../support.ts";
import { clientOf, createJob, finished, supervised, upload } from "./support.ts";

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

/** Results of a job that nothing interrupts. */
async function undisturbed(): Promise<Results> {
  const service = await startTestService();
  const client = clientOf(service);
  const validation_file = await upload(client, chatLines(2));
  return results(service, client, (await createJob(client, { ...SETTINGS, validation_file })).id);
}

type Results = Awaited<ReturnType<typeof results>>;
let expected: Results | undefined;

// Progress is saved after the steps 3, 4, 6, 8 and 9, and a checkpoint right after the progress of the steps 4 and 8.
test.each([
  ["optimStep", 3],
  ["optimStep", 6],
  ["optimStep", 10],
  ["saveState", 2],
  ["saveState", 3],
  ["saveState", 6],
  ["saveState", 8],
])(
  "a job whose service is killed in %s %i leaves the same bytes as an undisturbed one",
  async (verb, number) => {
    expected ??= await undisturbed();
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
      const files = { validation_file: await upload(client, chatLines(2)) };
      const { id } = await createJob(client, { ...SETTINGS, ...files });
      expect((await lines.next()).value).toBe("held");
      child.kill("SIGKILL");
      await exited;
      const after = await start();
      expect(await results(after, clientOf(after), id)).toEqual(expected);
    } finally {
      child.kill("SIGKILL");
    }
  },
  60_000,
);
