/** Mutated requests for files and jobs: none fails the service, and a rejected one changes neither rows nor files. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import { beforeEach, expect, test } from "vitest";
import { openConnection } from "../../../src/service/store/connection.ts";
import { chatLines, startTestService, type Answer, type TestService } from "../support.ts";
import { clientOf, upload } from "./support.ts";
import { onSqlite } from "../../support/postgres.ts";

// The tests read and change the files of SQLite.
beforeEach(onSqlite);

/** Mutated requests per kind; `FINE_TUNING_FUZZ_RUNS` asks for another number. @default 60 */
const RUNS = Number(process.env["FINE_TUNING_FUZZ_RUNS"] ?? 30);

const TIMEOUT_MS = 60_000 + 1000 * RUNS;

const TABLES = ["models", "checkpoints", "jobs", "job_events", "artifacts", "artifact_files", "files", "fine_tuning_jobs"];
const BOUNDARY = "----form";
const FORM = [
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n`,
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="expires_after[anchor]"\r\n\r\ncreated_at\r\n`,
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="expires_after[seconds]"\r\n\r\n3600\r\n`,
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="train.jsonl"\r\nContent-Type: application/jsonl\r\n\r\n`,
  `${chatLines(2)}\r\n--${BOUNDARY}--\r\n`,
].join("");
const LINES = [
  JSON.stringify({
    messages: [
      { role: "system", content: "a" },
      { role: "user", content: "b" },
      { role: "assistant", content: "c", weight: 1 },
    ],
    tools: [{ type: "function", function: { name: "f", parameters: { type: "object" } } }],
    parallel_tool_calls: false,
  }),
  chatLines(2),
].join("\n");

function jobBody(file: string): string {
  return JSON.stringify({
    model: "tiny",
    training_file: file,
    validation_file: file,
    suffix: "demo",
    seed: 1,
    metadata: { team: "a" },
    integrations: [],
    method: { type: "supervised", supervised: { hyperparameters: { batch_size: "auto", n_epochs: 1, learning_rate_multiplier: 1.5 } } },
  });
}

/** Texts that replace parts of a request. */
const VALUES = [
  '"auto"',
  "null",
  "-1",
  "0",
  "1e999",
  "9007199254740993",
  "[]",
  "{}",
  '""',
  '"\\ud800"',
  "\r\n",
  '"',
  "}",
  "--",
  "\u0000",
  "é",
];

/** Change of a text: a part, by its relative position, is replaced. */
const edit = fc.record({
  at: fc.double({ min: 0, max: 1, noNaN: true }),
  length: fc.oneof(fc.constant(0), fc.nat(6), fc.nat(60)),
  text: fc.oneof(fc.constantFrom(...VALUES), fc.string({ maxLength: 4 })),
});
/** Replacement of one of the JSON values of a text, which keeps the text valid JSON. */
const replacement = fc.record({ value: fc.nat(), by: fc.oneof(fc.constantFrom(...VALUES.slice(0, 9)), fc.json({ maxDepth: 1 })) });
const mutation = fc.oneof(
  fc.array(edit, { minLength: 1, maxLength: 3 }).map((edits) => (text: string) => edits.reduce(applyEdit, text)),
  replacement.map((change) => (text: string) => applyReplacement(text, change)),
);

function applyEdit(text: string, { at, length, text: inserted }: { at: number; length: number; text: string }): string {
  const start = Math.floor(at * text.length);
  return text.slice(0, start) + inserted + text.slice(start + length);
}

function applyReplacement(text: string, { value, by }: { value: number; by: string }): string {
  const values = [...text.matchAll(/"(?:[^"\\]|\\.)*"(?!\s*:)|-?\d[\d.e+-]*|true|false|null/gu)];
  const chosen = values[value % Math.max(values.length, 1)];
  return chosen === undefined ? text : text.slice(0, chosen.index) + by + text.slice(chosen.index + chosen[0].length);
}

/** Number of rows of each table, and the files of the data directory with their sizes. */
async function stateOf({ service: { dataDir } }: TestService): Promise<unknown> {
  const database = await openConnection(join(dataDir, "whetstone.db"), 1000, { isReadOnly: true });
  try {
    const rows = TABLES.map((table) => database.prepare(`SELECT count(*) AS count FROM ${table}`).all());
    const paths = (await readdir(dataDir, { recursive: true })).filter((path) => !path.startsWith("whetstone.db"));
    const files = paths.toSorted().map(async (path) => {
      const found = await stat(join(dataDir, path));
      return found.isFile() ? [path, found.size] : null;
    });
    // A directory may stay, such as the one of the first digits of a blob.
    return { rows, files: (await Promise.all(files)).filter((each) => each !== null) };
  } finally {
    database.close();
  }
}

/** Sends a request. A rejected one must leave everything as it was; an accepted job is cancelled, an accepted file deleted. */
async function check(service: TestService, send: () => Promise<Answer>): Promise<Answer> {
  const before = await stateOf(service);
  const answer = await send();
  const shown = JSON.stringify(answer.body);
  expect(answer.status, shown).toBeLessThan(500);
  if (answer.status !== 200) {
    expect(answer.body.error, shown).toMatchObject({ message: expect.any(String), type: expect.any(String), code: answer.status });
    expect(await stateOf(service), shown).toEqual(before);
  } else if (answer.body.object === "fine_tuning.job")
    await service.ok("POST", `/v1/fine_tuning/jobs/${answer.body.id}/cancel`).catch(ignoreEnd);
  if (answer.body.object === "file") await service.ok("DELETE", `/v1/files/${answer.body.id}`);
  return answer;
}

/** The job may have ended before it was cancelled. */
function ignoreEnd(error: Error): void {
  if (!error.message.includes("cannot be cancelled")) throw error;
}

const type = `multipart/form-data; boundary=${BOUNDARY}`;
const postFile = (service: TestService, body: string, contentType = type) =>
  service.call("POST", "/v1/files", Buffer.from(body), { headers: { "content-type": contentType } });
const postJob = (service: TestService, body: string) =>
  service.call("POST", "/v1/fine_tuning/jobs", body, { headers: { "content-type": "application/json" } });

test("the requests are accepted before they are mutated", async () => {
  const service = await startTestService();
  const { status, body } = await postFile(service, FORM);
  expect([status, body.bytes]).toEqual([200, chatLines(2).length]);
  expect((await postJob(service, jobBody(await upload(clientOf(service), LINES)))).status).toBe(200);
});

test(
  "mutated forms",
  async () => {
    const service = await startTestService();
    await fc.assert(
      fc.asyncProperty(mutation, (mutate) => check(service, () => postFile(service, mutate(FORM))).then(() => undefined)),
      { numRuns: RUNS },
    );
    await fc.assert(
      fc.asyncProperty(mutation, async (mutate) => {
        const header = mutate(type).replaceAll(/[^\t -~]/gu, "");
        await check(service, () => postFile(service, FORM, header));
      }),
      { numRuns: Math.ceil(RUNS / 4) },
    );
  },
  TIMEOUT_MS,
);

test(
  "mutated bodies of jobs",
  async () => {
    const service = await startTestService();
    const body = jobBody(await upload(clientOf(service), LINES));
    await fc.assert(
      fc.asyncProperty(mutation, (mutate) => check(service, () => postJob(service, mutate(body))).then(() => undefined)),
      { numRuns: RUNS },
    );
  },
  TIMEOUT_MS,
);

test(
  "jobs on mutated data",
  async () => {
    const service = await startTestService();
    const client = clientOf(service);
    await fc.assert(
      fc.asyncProperty(mutation, async (mutate) => {
        const lines = mutate(LINES);
        if (lines === "") return;
        const file = await upload(client, lines);
        const { status, body } = await check(service, () => postJob(service, jobBody(file)));
        if (status !== 200) expect([status, body.error.param]).toEqual([400, "training_file"]);
        await client.files.delete(file);
      }),
      { numRuns: RUNS },
    );
  },
  TIMEOUT_MS,
);

test(
  "mutated addresses and queries",
  async () => {
    const service = await startTestService();
    const file = await upload(clientOf(service), LINES);
    const { body: job } = await postJob(service, jobBody(file));
    await service.ok("POST", `/v1/fine_tuning/jobs/${job.id}/cancel`).catch(ignoreEnd);
    const requests = [
      ["GET", `/v1/files?limit=2&order=asc&purpose=fine-tune&after=${file}`],
      ["GET", `/v1/files/${file}/content`],
      ["GET", `/v1/fine_tuning/jobs?limit=2&metadata[team]=a&after=${job.id}`],
      ["GET", `/v1/fine_tuning/jobs/${job.id}/events?limit=2`],
      ["GET", `/v1/fine_tuning/jobs/${job.id}/checkpoints?after=ftckpt-1`],
      ["POST", `/v1/fine_tuning/jobs/${job.id}/pause`],
      ["POST", `/v1/fine_tuning/jobs/${job.id}/resume`],
      ["POST", `/v1/fine_tuning/jobs/${job.id}/cancel`],
    ] as const;
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...requests), mutation, async ([method, path], mutate) => {
        const changed = `/v1/${encodeURI(mutate(path.slice("/v1/".length)).toWellFormed?.() ?? "")}`;
        const { status, body } = await service.call(method, changed);
        expect(status, `${method} ${changed}: ${JSON.stringify(body)}`).toBeLessThan(500);
      }),
      { numRuns: RUNS },
    );
    expect((await service.call("GET", `/v1/files/${file}`)).status).toBe(200);
  },
  TIMEOUT_MS,
);
