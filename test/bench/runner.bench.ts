/**
 * Many completions at once against a local server that answers immediately: a bare undici loop, the library, the library writing its
 * groups to disk, and, where Python has the `openai` package, AsyncOpenAI with ART's way of gathering (all rollouts started at once).
 *
 *   npm run bench -- runner [--completions 20000] [--concurrency 1000] [--rounds 3] [--tokens 30] [--latency-ms 0]
 *     [--python python3] [--python-completions 4000]
 *
 * Every side runs in a process of its own, in turn, after a warm-up; the server in another. `time` is the median of the rounds over the
 * median of the bare loop.
 */
import { type ChildProcess, execFile, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import type { PeerResult } from "./runner-meter.ts";
import { measureInTurn, median, printTable, short, whole, type Variant } from "./support.ts";

/** What the server is told. */
export interface StubInput {
  /** Of a completion. */
  readonly tokens: number;
  readonly promptTokens: number;
  /** Between request and answer: the mean of times spread evenly from half to one and a half of it. */
  readonly latencyMs: number;
}

/** What a side is told. */
export interface PeerInput {
  readonly url: string;
  readonly completions: number;
  readonly concurrency: number;
  /** Completions before the clock starts. */
  readonly warmUp: number;
  /** Where to write; absent = nothing is written. */
  readonly directory?: string;
}

/** Rollouts per scenario. */
export const GROUP_SIZE = 8;

/** The prompt of a scenario, as long as a short task's. */
export function promptOf(scenario: number): string {
  return `Task ${scenario}: write the words of the following sentence in reverse order. The quick brown fox jumps over the lazy dog.`;
}

const PROMPT_TOKENS = 40;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      completions: { type: "string", default: "20000" },
      concurrency: { type: "string", default: "1000" },
      rounds: { type: "string", default: "3" },
      tokens: { type: "string", default: "30" },
      "latency-ms": { type: "string", default: "0" },
      python: { type: "string", default: "python3" },
      "python-completions": { type: "string", default: "4000" },
    },
  });
  const wholeGroups = (name: "completions" | "python-completions") =>
    Math.ceil(whole(name, values[name], 4 * GROUP_SIZE) / GROUP_SIZE) * GROUP_SIZE;
  const concurrency = whole("concurrency", values.concurrency);
  const stub = await startStub({
    tokens: whole("tokens", values.tokens),
    promptTokens: PROMPT_TOKENS,
    latencyMs: whole("latency-ms", values["latency-ms"], 0),
  });
  const directory = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  try {
    const completions = wholeGroups("completions");
    const input: PeerInput = { url: stub.url, completions, concurrency, warmUp: Math.ceil(completions / 10 / GROUP_SIZE) * GROUP_SIZE };
    const variants: Variant[] = [
      { label: "bare undici loop", program: new URL("runner-undici.ts", import.meta.url), input },
      { label: "library", program: new URL("runner-library.ts", import.meta.url), input },
      { label: "library, to disk", program: new URL("runner-library.ts", import.meta.url), input: { ...input, directory } },
    ];
    const python = await pythonVariant(values.python, { ...input, completions: wholeGroups("python-completions"), warmUp: GROUP_SIZE });
    if (python !== null) variants.push(python);
    print(variants, await measureInTurn<PeerResult>(variants, whole("rounds", values.rounds)));
  } finally {
    stub.process.disconnect();
    await rm(directory, { recursive: true, force: true });
  }
}

function print(variants: readonly Variant[], results: readonly (readonly PeerResult[])[]): void {
  const of = (rounds: readonly PeerResult[], read: (result: PeerResult) => number) => median(rounds.map(read));
  const rate = (rounds: readonly PeerResult[]) => of(rounds, ({ completions, seconds }) => completions / seconds);
  const [bare, library] = results as [PeerResult[], PeerResult[]];
  const rows = variants.map(({ label }, index) => {
    const rounds = results[index]!;
    const optional = (value: number) => (Number.isNaN(value) ? "–" : value.toFixed(2));
    return [
      rounds[0]!.by === undefined ? label : `${label} (${rounds[0]!.by})`,
      short(rate(rounds)),
      (rate(bare) / rate(rounds)).toFixed(2),
      short(of(rounds, ({ completions, cpuSeconds }) => (cpuSeconds / completions) * 1e6)),
      optional(of(rounds, ({ megabytesPerThousand }) => megabytesPerThousand ?? NaN)),
      optional(of(rounds, ({ peakMegabytes }) => peakMegabytes ?? NaN)),
      (rate(library) / rate(rounds)).toFixed(2),
    ];
  });
  printTable(["side", "completions/s", "time (bare loop = 1)", "CPU µs each", "MB per 1,000", "peak MB", "library is faster by"], rows);
  const ratios = bare.map((each, round) => library[round]!.seconds / each.seconds);
  console.log(`Time of the library over that of the bare loop, round by round: ${ratios.map((ratio) => ratio.toFixed(3)).join(", ")}`);
}

/** The Python side; null, with a word, where Python has no `openai`. */
async function pythonVariant(python: string, input: PeerInput): Promise<Variant | null> {
  try {
    await promisify(execFile)(python, ["-c", "import openai"]);
  } catch {
    console.log(`${python} cannot import openai: the Python side is skipped (pip install openai, and openpipe-art for its own gather).\n`);
    return null;
  }
  return { label: "AsyncOpenAI", program: new URL("runner_openai.py", import.meta.url), input, python };
}

async function startStub(input: StubInput): Promise<{ readonly url: string; readonly process: ChildProcess }> {
  const path = fileURLToPath(new URL("runner-stub.ts", import.meta.url));
  const stub = fork(path, [JSON.stringify(input)], { execArgv: ["--conditions=whetstone/source", "--import", "tsx"] });
  const [{ url }] = (await once(stub, "message")) as [{ url: string }];
  return { url, process: stub };
}
