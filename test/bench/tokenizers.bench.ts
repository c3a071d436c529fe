/**
 * Loading of tokenizers: time to read each file, and the longest delay of the serving thread's event loop while a work thread reads it.
 *
 *   npm run bench -- tokenizers --directories <directory>[:<directory>…] [--rounds 5]
 */
import { basename, dirname } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout } from "node:timers/promises";
import { parseArgs } from "node:util";
import { createWork } from "../../src/service/create-work.ts";
import { createTokenizer, readTokenizerData } from "../../src/text/tokenizer/index.ts";
import { median, printTable, whole } from "./support.ts";

/** Resolution of the delay, in milliseconds. */
const RESOLUTION_MS = 1;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: { directories: { type: "string", default: "models/whetstone-tiny" }, rounds: { type: "string", default: "5" } },
  });
  const rounds = whole("rounds", values.rounds);
  const rows: string[][] = [];
  for (const directory of values.directories.split(":")) rows.push(await measure(directory, rounds));
  printTable(
    ["tokenizer", "ids", "first load, ms", "load, ms", "processor, ms", "create, ms", "longest delay of the serving thread, ms"],
    rows,
  );
}

async function measure(directory: string, rounds: number): Promise<string[]> {
  const delay = await servingDelayMs(directory);
  const times: number[] = [];
  const processor: number[] = [];
  let size = 0;
  let createMs = 0;
  for (let round = 0; round < rounds; round++) {
    const [startMs, usage] = [performance.now(), process.cpuUsage()];
    const data = await readTokenizerData(directory);
    const readMs = performance.now();
    const { user, system } = process.cpuUsage(usage);
    const tokenizer = createTokenizer(data);
    createMs = performance.now() - readMs;
    times.push(readMs - startMs);
    processor.push((user + system) / 1000);
    size = tokenizer.vocabularySize;
  }
  const name = basename(directory) === "models" ? basename(dirname(directory)) : basename(directory);
  return [name, String(size), times[0]!, median(times), median(processor), createMs, delay].map((value) =>
    typeof value === "number" ? value.toFixed(0) : value,
  );
}

/** Returns the longest delay of this thread's event loop while the tokenizer is loaded and encodes for the first time. */
async function servingDelayMs(directory: string): Promise<number> {
  const work = createWork();
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  await setTimeout(100);
  histogram.reset();
  (await work.tokenizers(directory)).encode("Hello, world!");
  await setTimeout(20);
  histogram.disable();
  await work.close();
  return histogram.max / 1e6 - RESOLUTION_MS;
}
