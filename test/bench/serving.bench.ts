/**
 * Chat completions of one model file over HTTP: tokens per second of a service and of llama.cpp's server.
 *
 *   npm run bench -- serving --base <file or directory> [--weight-precision float32|int8|int4] [--rollout-precision float32|int8]
 *     [--clients 1,8,32] [--tokens 48] [--threads 2] [--rounds 3] [--llama-server <binary> [--llama-model <GGUF file>]]
 *
 * Each client sends one request at a time, each with another question, `temperature` 1 and `ignore_eos`. The rate is the number of
 * completion tokens by the time until the last answer. Servers run in turn, in processes of their own. `--threads` are the threads of
 * llama.cpp's server; a service uses all processors.
 */
import { parseArgs } from "node:util";
import { measureInTurn, median, OptionError, printTable, short, type Variant, whole } from "./support.ts";

/** Server to measure. */
export type ServedModel =
  | {
      readonly server: "whetstone";
      /** Base model as `--base-model` takes it. */
      readonly source: string;
      readonly weightPrecision: string;
      readonly rolloutPrecision: string;
    }
  | { readonly server: "llama.cpp"; readonly binary: string; readonly file: string };

/** Settings of one measurement. */
export interface ServingInput {
  readonly model: ServedModel;
  readonly clients: readonly number[];
  /** Tokens of an answer. */
  readonly tokens: number;
  /** Threads of llama.cpp's server. */
  readonly threads: number;
}

/** Completion tokens per second, one entry per number of clients. */
export type ServingResult = readonly number[];

const PRECISIONS: readonly string[] = ["float32", "int8", "int4"];

function precisionOf(name: string, text: string, allowed: readonly string[]): string {
  if (!allowed.includes(text)) throw new OptionError(`Expected --${name} to be one of ${allowed.join(", ")}, got "${text}"`);
  return text;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      base: { type: "string" },
      "weight-precision": { type: "string", default: "float32" },
      "rollout-precision": { type: "string", default: "float32" },
      clients: { type: "string", default: "1,8,32" },
      tokens: { type: "string", default: "48" },
      threads: { type: "string", default: "2" },
      rounds: { type: "string", default: "3" },
      "llama-server": { type: "string" },
      "llama-model": { type: "string" },
    },
  });
  const { base, "llama-server": binary, "llama-model": file = base } = values;
  if (base === undefined || file === undefined) throw new OptionError("Expected --base with a GGUF file or a directory, got none");
  const weightPrecision = precisionOf("weight-precision", values["weight-precision"], PRECISIONS);
  const rolloutPrecision = precisionOf("rollout-precision", values["rollout-precision"], PRECISIONS.slice(0, 2));
  const clients = values.clients.split(",").map((text) => whole("clients", text));
  const settings = { clients, tokens: whole("tokens", values.tokens), threads: whole("threads", values.threads) };
  const program = new URL("serving-clients.ts", import.meta.url);
  const variantOf = (label: string, model: ServedModel): Variant => ({ label, program, input: { model, ...settings } });
  const variants = [
    variantOf(`whetstone, weights ${weightPrecision}, rollouts ${rolloutPrecision}`, {
      server: "whetstone",
      source: base,
      weightPrecision,
      rolloutPrecision,
    }),
  ];
  if (binary !== undefined) variants.push(variantOf("llama.cpp", { server: "llama.cpp", binary, file }));
  const rates = (await measureInTurn<ServingResult>(variants, whole("rounds", values.rounds))).map((results) =>
    clients.map((_, index) => median(results.map((result) => result[index]!))),
  );
  printTable(
    ["clients", ...variants.map(({ label }) => `${label}: tokens/s`), "ratio"],
    clients.map((count, index) => {
      const [own, peer] = rates.map((rate) => rate[index]!);
      return [String(count), ...rates.map((rate) => short(rate[index]!)), peer === undefined ? "–" : (own! / peer).toFixed(2)];
    }),
  );
}
