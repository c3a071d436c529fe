/**
 * Table of one model size: training against PyTorch and sampling against transformers; at 2 M parameters, also the runner and memory.
 *
 *   npm run bench -- summary [--params 2m|27m|135m|0.5b] [--rounds 3] [--seconds 2]
 *
 * Sides run alternately. A ratio is this package's rate divided by the rate of the other side; a side that Python cannot run is left out.
 * Models of at most 27 M parameters train every parameter, larger ones an adapter. The runner's server takes half a second per completion
 * on average.
 */
import { parseArgs } from "node:util";
import { measureMemory, SHAPES } from "./memory.bench.ts";
import { completionRate, measureRunner } from "./runner.bench.ts";
import { availablePeers, measureSampling } from "./sample.bench.ts";
import { hasTorch, OptionError, printTable, short, whole } from "./support.ts";
import { DEFAULT_SHAPES, equalRows, measureTraining, rolloutRows, type TrainShape } from "./train.bench.ts";

/** Measurements of a model size. */
interface Size {
  /** Rank of the adapter that is trained and sampled; null = every parameter. */
  readonly rank: number | null;
  /** Rows of a training step. */
  readonly shapes: readonly TrainShape[];
  /** Threads of sampling; training uses two. */
  readonly samplingThreads: number;
  /** Min ratio of training to PyTorch; null = no target. */
  readonly trainingTarget: number | null;
  /** Min ratios of sampling to transformers by batch size; null = no target. */
  readonly samplingTargets: Readonly<Record<1 | 8 | 32, number | null>>;
}

const NO_TARGETS = { 1: null, 8: null, 32: null };

/** Rows of large models, of which a step of {@link DEFAULT_SHAPES} takes up to a minute. */
const FEWER_ROWS = [rolloutRows(2, 8, 128, 16, 64), equalRows(32, 41, 12), equalRows(2, 256, 255)];

/** Sizes by the name that `--params` takes. */
const SIZES: Readonly<Record<string, Size>> = {
  "2m": { rank: null, shapes: DEFAULT_SHAPES, samplingThreads: 1, trainingTarget: 1.5, samplingTargets: NO_TARGETS },
  "27m": { rank: null, shapes: DEFAULT_SHAPES, samplingThreads: 2, trainingTarget: 1.3, samplingTargets: NO_TARGETS },
  "135m": { rank: 16, shapes: FEWER_ROWS, samplingThreads: 2, trainingTarget: 1.5, samplingTargets: { 1: 1.2, 8: 2.5, 32: 1.8 } },
  "0.5b": { rank: 16, shapes: FEWER_ROWS, samplingThreads: 2, trainingTarget: null, samplingTargets: NO_TARGETS },
};

/** Measurement of this package and of the side that it is compared with. */
interface Measurement {
  readonly name: string;
  readonly rate: number;
  readonly other?: { readonly label: string; readonly rate: number } | undefined;
  readonly target: string;
}

/** Rounds in turn, and seconds per side and round. */
interface Run {
  readonly rounds: number;
  readonly seconds: number;
}

async function training(params: string, { rank, shapes, trainingTarget }: Size, run: Run): Promise<Measurement[]> {
  const lines = await measureTraining({ params, shapes, rank, threads: 2, ...run, withTorch: await hasTorch() });
  return shapes.map(({ label }) => {
    const [own, torch] = lines.filter(({ shape }) => shape === label);
    return {
      name: `training, ${label}: tokens/s`,
      rate: own!.tokensPerSecond,
      other: torch && { label: torch.side, rate: torch.tokensPerSecond },
      target: targetText(trainingTarget),
    };
  });
}

async function sampling(params: string, { rank, samplingThreads, samplingTargets }: Size, run: Run): Promise<Measurement[]> {
  const batches = [1, 8, 32] as const;
  const peers = await availablePeers(["transformers"]);
  const lines = await measureSampling({ params, batches, prompt: 32, tokens: 32, threads: samplingThreads, rank, ...run, peers });
  return batches.map((size) => {
    const [own, peer] = lines.filter(({ batch }) => batch === size);
    return {
      name: `sampling, batch of ${size}: tokens/s`,
      rate: own!.tokensPerSecond,
      other: peer && { label: peer.side, rate: peer.tokensPerSecond },
      target: targetText(samplingTargets[size]),
    };
  });
}

async function runner(rounds: number): Promise<Measurement> {
  const [bare, library] = await measureRunner({ completions: 20_000, concurrency: 1000, rounds, tokens: 30, latencyMs: 500, python: null });
  return {
    name: "rollouts: completions/s",
    rate: completionRate(library!),
    other: { label: bare!.label, rate: completionRate(bare!) },
    target: "at least 0.91",
  };
}

async function memory(params: string): Promise<Measurement> {
  const [result] = await measureMemory({ params, device: "cpu", threads: 2, shapes: SHAPES.slice(0, 1), readsGpu: false });
  return { name: "memory of a step, 8 × 256 tokens: MB", rate: result!.peakMb - result!.loadedMb, target: "at most 350 MB" };
}

/** Returns the text of a min ratio. */
function targetText(target: number | null): string {
  return target === null ? "–" : `at least ${target}`;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      params: { type: "string", default: "2m" },
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "2" },
    },
  });
  const { params } = values;
  const size = Object.hasOwn(SIZES, params) ? SIZES[params] : undefined;
  if (size === undefined) throw new OptionError(`Expected --params to be one of ${Object.keys(SIZES).join(", ")}, got "${params}"`);
  const timing: Run = { rounds: whole("rounds", values.rounds), seconds: whole("seconds", values.seconds) };
  const measurements = [...(await training(params, size, timing)), ...(await sampling(params, size, timing))];
  if (params === "2m") measurements.push(await runner(timing.rounds), await memory(params));
  printTable(
    ["measurement", "whetstone", "compared with", "ratio", "target"],
    measurements.map(({ name, rate, other, target }) => [
      name,
      short(rate),
      other === undefined ? "–" : `${other.label}: ${short(other.rate)}`,
      other === undefined ? "–" : (rate / other.rate).toFixed(2),
      target,
    ]),
  );
}
