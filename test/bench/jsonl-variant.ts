/** A variant of the JSON Lines benchmark: `jsonl-variant.ts <file with JsonlInput as JSON>`. */
import { readTrajectories, writeTrajectories } from "../../src/library/dataset/index.ts";
import { readLines } from "../../src/library/dataset/lines.ts";
import { Trajectory } from "../../src/base/trajectory/index.ts";
import { uniform } from "../../src/base/util/rng.ts";
import type { JsonlInput, JsonlResult } from "./jsonl.bench.ts";
import { variantInput } from "./support.ts";

const PIECES = ["the", " of", " answer", " is", "\n\n", " 4", "2", ' {"', '":', " search", " because", " wäre", " –", "ing", " I", ","];
const ENCODED = PIECES.map((piece) => [...Buffer.from(piece)]);
/** Lines held before they are parsed. */
const BATCH_BYTES = 8e6;

function made(index: number): Trajectory {
  let state = Math.floor(uniform(1n, index) * 2147483646) + 1;
  const draw = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const ids = (length: number) => Array.from({ length }, () => Math.floor(draw() * 150_000));
  let prompt = ids(120);
  const items: unknown[] = [
    { role: "system", content: "You answer questions. Use the tools." },
    { role: "user", content: `Question ${index}: what is ${Math.floor(draw() * 1000)} times ${Math.floor(draw() * 1000)}?` },
  ];
  for (let turn = 0; turn < 3; turn++) {
    const chosen = Array.from({ length: 32 + Math.floor(draw() * 225) }, () => Math.floor(draw() * PIECES.length));
    const tokenIds = ids(chosen.length);
    const content = chosen.map((piece) => ({
      token: PIECES[piece]!,
      logprob: Math.fround(Math.log(draw())),
      bytes: ENCODED[piece]!,
      top_logprobs: [],
    }));
    items.push({
      index: 0,
      message: { role: "assistant", content: content.map(({ token }) => token).join(""), tool_calls: [] },
      logprobs: { content },
      finish_reason: "stop",
      token_ids: tokenIds,
      prompt_token_ids: prompt,
      policy_version: 3,
    });
    items.push({ role: "user", content: "Are you sure?" });
    prompt = [...prompt, ...tokenIds, ...ids(8)];
  }
  return Trajectory.fromJSON({
    messages_and_choices: items,
    reward: Math.round(draw() * 100) / 100,
    initial_policy_version: 3,
    final_policy_version: 3,
    metrics: { duration: draw() * 10, turns: 3 },
    metadata: { scenario_id: `s${index >> 3}`, step: 3, task: "arithmetic" },
    start_time: "2026-01-01T00:00:00.000Z",
  });
}

const cpuSeconds = (since?: NodeJS.CpuUsage) => {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1e6;
};

async function write({ path, sizeBytes }: JsonlInput): Promise<Omit<JsonlResult, "peakRssMb">> {
  let written = 0;
  const source = function* () {
    for (let index = 0; written < sizeBytes; index++) {
      const each = made(index);
      written += Buffer.byteLength(JSON.stringify(each)) + 1;
      yield each;
    }
  };
  const before = process.cpuUsage();
  const { count } = await writeTrajectories(path, source());
  return { count, sizeBytes: written, cpuSeconds: cpuSeconds(before) };
}

async function read({ path }: JsonlInput): Promise<Omit<JsonlResult, "peakRssMb">> {
  let count = 0;
  const before = process.cpuUsage();
  for await (const { reward } of readTrajectories(path)) if (reward >= 0) count++;
  return { count, sizeBytes: 0, cpuSeconds: cpuSeconds(before) };
}

function parsed(text: string): number {
  return (JSON.parse(text) as { reward: number }).reward >= 0 ? 1 : 0;
}

async function lines({ path }: JsonlInput): Promise<Omit<JsonlResult, "peakRssMb">> {
  let count = 0;
  const before = process.cpuUsage();
  for await (const { text } of readLines(path)) count += parsed(text!);
  return { count, sizeBytes: 0, cpuSeconds: cpuSeconds(before) };
}

async function parse({ path }: JsonlInput): Promise<Omit<JsonlResult, "peakRssMb">> {
  let [count, sizeBytes, seconds, held] = [0, 0, 0, 0];
  let batch: string[] = [];
  const flush = () => {
    const before = process.cpuUsage();
    for (const text of batch) count += parsed(text);
    seconds += cpuSeconds(before);
    [batch, held] = [[], 0];
  };
  for await (const { text } of readLines(path)) {
    batch.push(text!);
    held += text!.length;
    sizeBytes += text!.length;
    if (held >= BATCH_BYTES) flush();
  }
  flush();
  return { count, sizeBytes, cpuSeconds: seconds };
}

const input = variantInput<JsonlInput>();
const result = await { write, read, lines, parse }[input.mode](input);
console.log(JSON.stringify({ ...result, peakRssMb: process.resourceUsage().maxRSS / 1024 } satisfies JsonlResult));
