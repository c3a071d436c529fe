/**
 * Sampling tokens per second through the engine's port, compared with `generate` of transformers, a plain batched PyTorch loop with a cache, or
 * PyTorch's products with the weights alone, an upper bound for any engine. Ratios are to the first of these programs.
 *
 *   npm run bench -- sample [--params tiny|2m|27m|135m] [--batch 1,8,32,128] [--prompt 32] [--tokens 32] [--threads 1] [--rounds 3]
 *     [--lora 16] [--vs torch,transformers,products]
 *
 * `--lora` samples an adapter of this rank on all linear layers, with PEFT on the side of transformers, the only other side with adapters.
 * The engine's threads are samplers for a small model and threads inside one operation for a large one; the other programs use threads inside one operation. Temperature 1; every prompt differs; prefill counts as time, prompt tokens do not count as tokens.
 */
import { parseArgs } from "node:util";
import { writeRandomWeights } from "./random-weights.ts";
import {
  hasPython,
  hasWeights,
  measureInTurn,
  median,
  OptionError,
  printTable,
  requireContext,
  shapeName,
  short,
  type Variant,
  whole,
  withShape,
} from "./support.ts";

/** Settings of both programs. */
export interface SampleInput {
  readonly directory: string;
  readonly batches: readonly number[];
  readonly prompt: number;
  readonly tokens: number;
  readonly threads: number;
  /** Rank of the adapter that is sampled; null = a model without adapter. @default null */
  readonly rank?: number | null;
  /** Per batch size. */
  readonly seconds: number;
  /** Device of PyTorch. @default "cpu" */
  readonly device?: string | null;
}

/** Output of both programs, one entry per batch size. */
export interface SampleResult {
  /** Median time to sample all tokens of a batch. */
  readonly ms: number;
  /** Processor time of all threads. */
  readonly cpuMs: number;
}

/** Side to compare with. */
interface Peer {
  readonly label: string;
  readonly program: string;
  /** Python module without which the side is skipped. */
  readonly module: string;
}

/** Programs that `--vs` selects. */
const PEERS: Readonly<Record<string, Peer>> = {
  torch: { label: "PyTorch", program: "torch_sample.py", module: "torch" },
  products: { label: "its products alone", program: "torch_products.py", module: "torch" },
  transformers: { label: "transformers", program: "transformers_sample.py", module: "transformers" },
};

/** Returns the sides of `names` that Python can run. @throws OptionError for a name without a side, before Python is started. */
export async function availablePeers(names: readonly string[]): Promise<Peer[]> {
  const named = names.map((name): Peer => {
    const peer = PEERS[name];
    if (peer === undefined) throw new OptionError(`Expected --vs to be some of ${Object.keys(PEERS).join(", ")}, got "${name}"`);
    return peer;
  });
  const peers: Peer[] = [];
  for (const peer of named) if (await hasPython(peer.module)) peers.push(peer);
  return peers;
}

/** Settings of {@link measureSampling}. */
export interface SampleSettings extends Omit<SampleInput, "directory"> {
  /** Shape of the model, as `--params` names it. */
  readonly params: string;
  readonly rounds: number;
  readonly peers: readonly Peer[];
}

/** Medians of one side for one batch size. */
export interface SampleLine {
  readonly batch: number;
  readonly side: string;
  readonly tokensPerSecond: number;
  readonly ms: number;
  readonly cpuMs: number;
}

/** Measures sampling for every batch size and engine. The rows of a batch size begin with this engine; its peers follow. */
export async function measureSampling({ params, rounds, peers, ...settings }: SampleSettings): Promise<SampleLine[]> {
  const { variants, results } = await withShape(params, async (directory) => {
    if (typeof settings.rank === "number" && !hasWeights(params)) await writeRandomWeights(directory, "F32");
    const input: SampleInput = { directory, ...settings };
    const all: Variant[] = [{ label: "whetstone", program: new URL("sample-engine.ts", import.meta.url), input }];
    for (const { label, program } of peers) all.push({ label, program: new URL(program, import.meta.url), input });
    return { variants: all, results: await measureInTurn<SampleResult[]>(all, rounds) };
  });
  return settings.batches.flatMap((batch, at) =>
    variants.map(({ label: side }, index) => {
      const ms = median(results[index]!.map((result) => result[at]!.ms));
      const cpuMs = median(results[index]!.map((result) => result[at]!.cpuMs));
      return { batch, side, tokensPerSecond: (batch * settings.tokens * 1000) / ms, ms, cpuMs };
    }),
  );
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      params: { type: "string", default: "tiny" },
      batch: { type: "string", default: "1,8,32,128" },
      prompt: { type: "string", default: "32" },
      tokens: { type: "string", default: "32" },
      threads: { type: "string", default: "1" },
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "1" },
      lora: { type: "string" },
      vs: { type: "string" },
    },
  });
  const params = shapeName(values.params);
  const batches = values.batch.split(",").map((text) => whole("batch", text));
  const [prompt, tokens] = [whole("prompt", values.prompt), whole("tokens", values.tokens)];
  const [threads, rounds, seconds] = [whole("threads", values.threads), whole("rounds", values.rounds), whole("seconds", values.seconds)];
  const rank = values.lora === undefined ? null : whole("lora", values.lora);
  if (rank !== null && (values.vs ?? "transformers") !== "transformers")
    throw new OptionError(`Expected --lora alone or with --vs transformers, got --vs ${values.vs}`);
  await requireContext(params, prompt + tokens);
  const peers = await availablePeers(values.vs?.split(",") ?? []);
  console.log(
    `Sampling, ${params} parameters${rank === null ? "" : `, an adapter of rank ${rank}`}, prompt ${prompt}, ${tokens} new tokens, ${threads} threads, ${rounds} rounds in turn, medians\n`,
  );
  const lines = await measureSampling({ params, batches, prompt, tokens, threads, rank, seconds, rounds, peers });
  const table = lines.map(({ batch, side, tokensPerSecond, ms, cpuMs }) => {
    const first = lines.find((line) => line.batch === batch && line.side === peers[0]?.label);
    const ratio = first === undefined ? "–" : (tokensPerSecond / first.tokensPerSecond).toFixed(2);
    return [String(batch), side, short(tokensPerSecond), ratio, (ms / tokens).toFixed(2), ((cpuMs / batch / tokens) * 1000).toFixed(0)];
  });
  printTable(["batch", "", "tokens/s", "ratio", "ms/position", "CPU µs/token"], table);
}
