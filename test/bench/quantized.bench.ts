/**
 * Sampling from a pretrained model with an adapter, with weights in float32, int4 and int8: processor time of a decoding step, memory, and
 * the difference of the recorded log-probabilities from the trainer's. Each variant has a process of its own; Linux reports the peaks.
 *
 *   npm run bench -- quantized --base <directory> [--variants float32,int4,int4+int8,int8+int8] [--batch 1,8,32] [--prompt 24] [--tokens 32]
 *     [--rank 16] [--threads 1] [--rounds 3]
 *
 * A variant is a weight precision and, after a plus, a rollout precision. The time of a step includes drawing the tokens; prompts are not
 * part of it.
 */
import { parseArgs } from "node:util";
import type { OnnxEngineOptions } from "../../src/engine/index.ts";
import { measureInTurn, median, OptionError, printTable, type Variant, whole } from "./support.ts";

/** Input of `quantized-engine.ts`. */
export interface QuantizedInput {
  readonly directory: string;
  readonly precisions: Pick<OnnxEngineOptions, "weightPrecision" | "rolloutPrecision">;
  readonly batches: readonly number[];
  readonly prompt: number;
  readonly tokens: number;
  readonly rank: number;
  readonly threads: number;
}

/** Output of `quantized-engine.ts`; memory in 10⁶ bytes. */
export interface QuantizedResult {
  /** Processor time of a step for each batch size, in milliseconds. */
  readonly stepMs: readonly number[];
  /** Processor time of the prompts of the largest batch, in milliseconds. */
  readonly promptMs: number;
  /** Peak of the resident memory with one training pass. */
  readonly peakMb: number;
  /** Largest and mean difference of a log-probability from the trainer's. */
  readonly worst: number;
  readonly mean: number;
  /** Mean log-probability of a fixed text under the base model. */
  readonly textLogprob: number;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      base: { type: "string" },
      variants: { type: "string", default: "float32,float32+int8,int4,int4+int8,int8,int8+int8" },
      batch: { type: "string", default: "1,8,32" },
      prompt: { type: "string", default: "24" },
      tokens: { type: "string", default: "32" },
      rank: { type: "string", default: "16" },
      threads: { type: "string", default: "1" },
      rounds: { type: "string", default: "3" },
    },
  });
  const { base } = values;
  if (base === undefined) throw new OptionError("Expected --base with the directory of a model in Hugging Face layout, or a GGUF file");
  const batches = values.batch.split(",").map((text) => whole("batch", text));
  const shared = {
    directory: base,
    batches,
    prompt: whole("prompt", values.prompt),
    tokens: whole("tokens", values.tokens, 3),
    rank: whole("rank", values.rank),
    threads: whole("threads", values.threads),
  };
  const program = new URL("quantized-engine.ts", import.meta.url);
  const variants = values.variants.split(",").map((label): Variant => {
    const [weightPrecision, rolloutPrecision = "float32"] = label.split("+");
    const precisions = { weightPrecision, rolloutPrecision } as QuantizedInput["precisions"];
    return { label, program, input: { ...shared, precisions } satisfies QuantizedInput };
  });
  const results = await measureInTurn<QuantizedResult>(variants, whole("rounds", values.rounds));
  const middle = (at: number, of: (result: QuantizedResult) => number) => median(results[at]!.map(of));
  console.log(
    `Adapter of rank ${values.rank}, prompts of ${values.prompt} tokens, ${values.tokens} tokens each, ${values.threads} threads\n`,
  );
  printTable(
    ["weights + rollouts", ...batches.map((size) => `CPU ms per step, ${size}`), "prompts, CPU ms", "peak MB"],
    variants.map(({ label }, at) => [
      label,
      ...batches.map((_, index) => middle(at, ({ stepMs }) => stepMs[index]!).toFixed(1)),
      middle(at, ({ promptMs }) => promptMs).toFixed(0),
      middle(at, ({ peakMb }) => peakMb).toFixed(0),
    ]),
  );
  printTable(
    ["weights + rollouts", "sampler − trainer, worst", "mean", "log-probability of the text"],
    variants.map(({ label }, at) => [
      label,
      middle(at, ({ worst }) => worst).toExponential(1),
      middle(at, ({ mean }) => mean).toExponential(1),
      middle(at, ({ textLogprob }) => textLogprob).toFixed(4),
    ]),
  );
}
