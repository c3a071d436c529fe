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

/** Settings of the server. */
export interface StubInput {
  /** Tokens of a completion. */
  readonly tokens: number;
  readonly promptTokens: number;
  /** Between request and answer: the mean of times spread evenly from half to one and a half of it. */
  readonly latencyMs: number;
}

/** Settings of a side. */
export interface PeerInput {
  readonly url: string;
  readonly completions: number;
  readonly concurrency: number;
  /** Completions before the clock starts. */
  readonly warmUp: number;
  /** Directory for the rollouts. @default none: nothing is written */
  readonly directory?: string;
}

/** Rollouts per scenario. */
export const GROUP_SIZE = 8;

/** The prompt of a scenario, as long as a short task's. */
export function promptOf(scenario: number): string {
  return `Task ${scenario}: write the words of the following sentence in reverse order. The quick brown fox jumps over the lazy dog.`;
}

const PROMPT_TOKENS = 40;

/** Settings of {@link measureRunner}. */
export interface RunnerSettings extends Pick<PeerInput, "completions" | "concurrency"> {
  readonly rounds: number;
  /** Tokens of a completion. */
  readonly tokens: number;
  readonly latencyMs: number;
  /** Null leaves the Python side out. */
  readonly python: { readonly command: string; readonly completions: number } | null;
}

/** Results of one side, round by round. */
export interface RunnerSide {
  readonly label: string;
  readonly rounds: readonly PeerResult[];
}

/** Measures every side against one server: the bare loop, the library, the library writing to disk, and Python if available. */
export async function measureRunner(settings: RunnerSettings): Promise<RunnerSide[]> {
  const { completions, concurrency, python } = settings;
  const stub = await startStub({ tokens: settings.tokens, promptTokens: PROMPT_TOKENS, latencyMs: settings.latencyMs });
  const directory = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  try {
    const input: PeerInput = { url: stub.url, completions, concurrency, warmUp: wholeGroups(completions / 10) };
    const variants: Variant[] = [
      { label: "bare undici loop", program: new URL("runner-undici.ts", import.meta.url), input },
      { label: "library", program: new URL("runner-library.ts", import.meta.url), input },
      { label: "library, to disk", program: new URL("runner-library.ts", import.meta.url), input: { ...input, directory } },
    ];
    const gather = python && (await pythonVariant(python.command, { ...input, completions: python.completions, warmUp: GROUP_SIZE }));
    if (gather) variants.push(gather);
    const results = await measureInTurn<PeerResult>(variants, settings.rounds);
    return variants.map(({ label }, index) => ({ label, rounds: results[index]! }));
  } finally {
    stub.process.disconnect();
    await rm(directory, { recursive: true, force: true });
  }
}

/** Median completions per second. */
export function completionRate({ rounds }: RunnerSide): number {
  return median(rounds.map(({ completions, seconds }) => completions / seconds));
}

function wholeGroups(completions: number): number {
  return Math.ceil(completions / GROUP_SIZE) * GROUP_SIZE;
}

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
  const completionsOf = (name: "completions" | "python-completions") => wholeGroups(whole(name, values[name], 4 * GROUP_SIZE));
  print(
    await measureRunner({
      completions: completionsOf("completions"),
      concurrency: whole("concurrency", values.concurrency),
      rounds: whole("rounds", values.rounds),
      tokens: whole("tokens", values.tokens),
      latencyMs: whole("latency-ms", values["latency-ms"], 0),
      python: { command: values.python, completions: completionsOf("python-completions") },
    }),
  );
}

function print(sides: readonly RunnerSide[]): void {
  const of = (rounds: readonly PeerResult[], read: (result: PeerResult) => number) => median(rounds.map(read));
  const [bare, library] = sides as [RunnerSide, RunnerSide];
  const rows = sides.map((side) => {
    const { label, rounds } = side;
    const optional = (value: number) => (Number.isNaN(value) ? "–" : value.toFixed(2));
    return [
      rounds[0]!.by === undefined ? label : `${label} (${rounds[0]!.by})`,
      short(completionRate(side)),
      (completionRate(bare) / completionRate(side)).toFixed(2),
      short(of(rounds, ({ completions, cpuSeconds }) => (cpuSeconds / completions) * 1e6)),
      optional(of(rounds, ({ megabytesPerThousand }) => megabytesPerThousand ?? NaN)),
      optional(of(rounds, ({ peakMegabytes }) => peakMegabytes ?? NaN)),
      (completionRate(library) / completionRate(side)).toFixed(2),
    ];
  });
  printTable(["side", "completions/s", "time (bare loop = 1)", "CPU µs each", "MB per 1,000", "peak MB", "library is faster by"], rows);
  const ratios = bare.rounds.map((each, round) => library.rounds[round]!.seconds / each.seconds);
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
