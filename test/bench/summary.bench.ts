/**
 * Table of the measurements that have a target: training, sampling, the runner and memory, at 2 M parameters.
 *
 *   npm run bench -- summary [--rounds 3] [--seconds 2]
 *
 * Sides run alternately. A ratio is this package's rate divided by the rate of the other side; a side that Python cannot run is left out.
 * Training and memory use two threads, sampling one. The runner's server takes half a second per completion on average.
 */
import { parseArgs } from "node:util";
import { measureMemory, SHAPES } from "./memory.bench.ts";
import { completionRate, measureRunner } from "./runner.bench.ts";
import { availablePeers, measureSampling } from "./sample.bench.ts";
import { hasTorch, printTable, short, whole } from "./support.ts";
import { DEFAULT_SHAPES, measureTraining } from "./train.bench.ts";

const PARAMS = "2m";

/** Measurement of this package and of the side that it is compared with. */
interface Measurement {
  readonly name: string;
  readonly rate: number;
  readonly other?: { readonly label: string; readonly rate: number } | undefined;
  readonly target: string;
}

async function training(rounds: number, seconds: number): Promise<Measurement[]> {
  const settings = { params: PARAMS, shapes: DEFAULT_SHAPES, rank: null, threads: 2, rounds, seconds, withTorch: await hasTorch() };
  const lines = await measureTraining(settings);
  return DEFAULT_SHAPES.map(({ label }) => {
    const [own, torch] = lines.filter(({ shape }) => shape === label);
    return {
      name: `training, ${label}: tokens/s`,
      rate: own!.tokensPerSecond,
      other: torch && { label: torch.side, rate: torch.tokensPerSecond },
      target: "at least 1.5",
    };
  });
}

async function sampling(rounds: number, seconds: number): Promise<Measurement[]> {
  const batches = [1, 8, 32];
  const peers = await availablePeers(["transformers"]);
  const lines = await measureSampling({ params: PARAMS, batches, prompt: 32, tokens: 32, threads: 1, rounds, seconds, peers });
  return batches.map((size) => {
    const [own, peer] = lines.filter(({ batch }) => batch === size);
    return {
      name: `sampling, batch of ${size}: tokens/s`,
      rate: own!.tokensPerSecond,
      other: peer && { label: peer.side, rate: peer.tokensPerSecond },
      target: "at least 5",
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

async function memory(): Promise<Measurement> {
  const [result] = await measureMemory({ params: PARAMS, device: "cpu", threads: 2, shapes: SHAPES.slice(0, 1), readsGpu: false });
  return { name: "memory of a step, 8 × 256 tokens: MB", rate: result!.peakMb - result!.loadedMb, target: "at most 350 MB" };
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { rounds: { type: "string", default: "3" }, seconds: { type: "string", default: "2" } } });
  const [rounds, seconds] = [whole("rounds", values.rounds), whole("seconds", values.seconds)];
  const measurements = [...(await training(rounds, seconds)), ...(await sampling(rounds, seconds)), await runner(rounds), await memory()];
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
