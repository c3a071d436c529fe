import type { Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import type { TextMetric } from "../../../src/base/schema/index.ts";
import { spawnWorker } from "../../../src/base/util/spawn-worker.ts";
import { GraderError } from "../../../src/graders/errors.ts";
import { textSimilarity } from "../../../src/graders/index.ts";
import { GraderWork } from "../../../src/service/grading/grader-work.ts";
import { WorkPool } from "../../../src/service/work/pool.ts";

/** Work with the threads that it starts. */
function createWork(): { readonly work: GraderWork; readonly threads: readonly Worker[] } {
  const threads: Worker[] = [];
  const spawn = () => {
    const worker = spawnWorker("service/request-worker");
    threads.push(worker);
    return worker;
  };
  const pool = new WorkPool({ maxThreads: 1, spawn });
  onTestFinished(() => pool.close());
  return { work: new GraderWork(pool), threads };
}

/** Text of words, of which `shift` changes some. */
const text = (length: number, shift: number) =>
  Array.from({ length }, (_, i) => `w${(i * (i % 3 === 0 ? shift : 7)) % 97} `)
    .join("")
    .slice(0, length);

test("short texts are compared on the serving thread", async () => {
  const { work, threads } = createWork();
  expect(await work.similarity("fuzzy_match", ["the cat sat", "a cat sat down"], undefined)).toBe(
    textSimilarity("fuzzy_match", "the cat sat", "a cat sat down"),
  );
  expect(threads).toHaveLength(0);
});

test.each<[TextMetric, number, number]>([
  ["fuzzy_match", 1500, 1400],
  ["meteor", 20_000, 200],
  ["bleu", 9000, 9000],
])("long texts have the same %s on a work thread", async (metric, a, b) => {
  const { work, threads } = createWork();
  const [left, right] = [text(a, 5), text(b, 11)];
  expect(await work.similarity(metric, [left, right], undefined)).toBe(textSimilarity(metric, left, right));
  expect(threads).toHaveLength(1);
});

test("texts that are too long are refused before a thread starts", async () => {
  const { work, threads } = createWork();
  await expect(work.similarity("rouge_l", [text(20_000, 5), text(20_000, 7)], undefined)).rejects.toThrow(GraderError);
  expect(threads).toHaveLength(0);
});

test("an abort ends a comparison", async () => {
  const { work } = createWork();
  const abort = new AbortController();
  const compared = work.similarity("fuzzy_match", [text(16_000, 5), text(16_000, 7)], abort.signal);
  abort.abort(new Error("stop"));
  await expect(compared).rejects.toThrow("stop");
});
