/**
 * Sampling tokens per second through the engine's port, beside `generate` of transformers, a plain batched PyTorch loop with a cache, or
 * PyTorch's products with the weights alone, which bound what any engine may reach. Ratios are to the first of those.
 *
 *   npm run bench -- sample [--params tiny|2m|27m|135m] [--batch 1,8,32,128] [--prompt 32] [--tokens 32] [--threads 1] [--rounds 3]
 *     [--vs torch,transformers,products]
 *
 * The engine's threads are samplers for a small model and threads inside one operation for a large one; those of the others are inside one operation. Temperature 1; every prompt differs; prefill counts as time, prompt tokens do not count as tokens.
 */
import { parseArgs } from "node:util";
import { hasPython, measureInTurn, median, printTable, short, type Variant, whole, withShape } from "./support.ts";

/** What both programs are told. */
export interface SampleInput {
  readonly directory: string;
  readonly batches: readonly number[];
  readonly prompt: number;
  readonly tokens: number;
  readonly threads: number;
  /** Per batch size. */
  readonly seconds: number;
}

/** What both programs print, one entry per batch size. */
export interface SampleResult {
  /** Median time to sample all tokens of a batch. */
  readonly ms: number;
  /** Processor time of all threads. */
  readonly cpuMs: number;
}

/** What `--vs` takes. */
const PEERS: Readonly<Record<string, { readonly label: string; readonly program: string; readonly module: string }>> = {
  torch: { label: "PyTorch", program: "torch_sample.py", module: "torch" },
  products: { label: "its products alone", program: "torch_products.py", module: "torch" },
  transformers: { label: "transformers", program: "transformers_sample.py", module: "transformers" },
};

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
      vs: { type: "string" },
    },
  });
  const peers: (typeof PEERS)[string][] = [];
  for (const name of values.vs?.split(",") ?? []) {
    const peer = PEERS[name];
    if (peer === undefined) throw new RangeError(`Expected --vs to be some of ${Object.keys(PEERS).join(", ")}, got "${name}"`);
    if (await hasPython(peer.module)) peers.push(peer);
  }
  const batches = values.batch.split(",").map((text) => whole("batch", text));
  const [prompt, tokens] = [whole("prompt", values.prompt), whole("tokens", values.tokens)];
  const [threads, rounds, seconds] = [whole("threads", values.threads), whole("rounds", values.rounds), whole("seconds", values.seconds)];
  console.log(
    `Sampling, ${values.params} parameters, prompt ${prompt}, ${tokens} new tokens, ${threads} threads, ${rounds} rounds in turn, medians\n`,
  );
  const { variants, results } = await withShape(values.params, async (directory) => {
    const input: SampleInput = { directory, batches, prompt, tokens, threads, seconds };
    const all: Variant[] = [{ label: "whetstone", program: new URL("sample-engine.ts", import.meta.url), input }];
    for (const { label, program } of peers) all.push({ label, program: new URL(program, import.meta.url), input });
    return { variants: all, results: await measureInTurn<SampleResult[]>(all, rounds) };
  });
  const lines = batches.flatMap((batch, at) => {
    const rates = results.map((each) => (batch * tokens * 1000) / median(each.map((result) => result[at]!.ms)));
    return variants.map(({ label }, index) => [
      String(batch),
      label,
      short(rates[index]!),
      peers.length > 0 ? (rates[index]! / rates[1]!).toFixed(2) : "–",
      (median(results[index]!.map((result) => result[at]!.ms)) / tokens).toFixed(2),
      ((median(results[index]!.map((result) => result[at]!.cpuMs)) / batch / tokens) * 1000).toFixed(0),
    ]);
  });
  printTable(["batch", "", "tokens/s", "ratio", "ms/position", "CPU µs/token"], lines);
}
