/**
 * MaskBench: constrained decoding of real JSON schemas, without a model. Every test of a schema is a JSON document that its grammar must accept
 * or reject, token by token.
 *
 *   npm run bench -- maskbench --data <folder> --tokenizer <directory>[:<directory>…] [--every 1] [--slowest 0]
 *
 * The data is the folder `maskbench/data` of https://github.com/guidance-ai/jsonschemabench; `--every 4` reads every fourth schema, and
 * `--slowest 10` lists the ten that take longest to the first mask. The method
 * is that of its runner: a schema passes if it compiles, its valid documents are accepted and its invalid ones rejected; a schema that does
 * not compile is refused. The time to the first mask is from the schema to the mask of the first token, and the time of a mask includes the
 * step by the token.
 */
import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { textVocabulary } from "../../src/engine/onnx/sample/grammar-cache.ts";
import { compileGrammar } from "../../src/text/grammar/decode/automaton.ts";
import { Configurations } from "../../src/text/grammar/decode/configurations.ts";
import { GrammarConstraint } from "../../src/text/grammar/decode/constraint.ts";
import type { Vocabulary } from "../../src/text/grammar/decode/vocabulary.ts";
import { GrammarBuilder } from "../../src/text/grammar/expression.ts";
import { SchemaCompiler } from "../../src/text/grammar/compile/schema/compiler.ts";
import { type ChatTokenizer, loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { OptionError, printTable, whole } from "./support.ts";

/** File of the benchmark. */
interface MaskBenchFile {
  readonly schema: unknown;
  readonly tests: readonly { readonly valid: boolean; readonly data: unknown }[];
}

/** Result of one schema. */
interface SchemaResult {
  readonly file: string;
  /** Error of the compilation; null if it succeeded. */
  readonly refusal: string | null;
  readonly firstMaskMs: number;
  /** Valid documents that were rejected, and invalid ones that were accepted. */
  readonly wronglyRejected: number;
  readonly wronglyAccepted: number;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      data: { type: "string" },
      tokenizer: { type: "string" },
      every: { type: "string", default: "1" },
      slowest: { type: "string", default: "0" },
    },
  });
  const { data, tokenizer } = values;
  if (data === undefined) throw new OptionError("Expected --data with the folder of MaskBench's schemas, got none");
  if (tokenizer === undefined) throw new OptionError("Expected --tokenizer with the directory of a tokenizer, got none");
  const every = whole("every", values.every);
  const files = readdirSync(data)
    .filter((name) => name.endsWith(".json"))
    .sort()
    .filter((_, index) => index % every === 0);
  if (files.length === 0) throw new OptionError(`Expected --data with JSON files, got none in ${data}`);
  const rows: string[][] = [];
  for (const directory of tokenizer.split(":")) {
    const { results, maskMs } = measure(await loadTokenizer(directory), data, files);
    rows.push(summary(nameOf(directory), results, maskMs));
    const slowest = results.toSorted((a, b) => b.firstMaskMs - a.firstMaskMs).slice(0, whole("slowest", values.slowest, 0));
    for (const { file, firstMaskMs } of slowest) console.log(`${file}: ${firstMaskMs.toFixed(0)} ms to the first mask`);
  }
  printTable(
    [
      "tokenizer",
      "schemas",
      "pass",
      "refused",
      "wrongly rejected",
      "wrongly accepted",
      "first mask, ms: median",
      "p99",
      "most",
      "mask, ms: median",
      "p99",
      "p99.9",
      "most",
    ],
    rows,
  );
}

function nameOf(directory: string): string {
  return basename(directory) === "models" ? basename(dirname(directory)) : basename(directory);
}

function measure(tokenizer: ChatTokenizer, data: string, files: readonly string[]): { results: SchemaResult[]; maskMs: number[] } {
  const vocabulary = textVocabulary(tokenizer);
  const maskMs: number[] = [];
  const results = files.map((file) => {
    const content = JSON.parse(readFileSync(join(data, file), "utf8")) as MaskBenchFile;
    return measureSchema(file, content, tokenizer, vocabulary, maskMs);
  });
  return { results, maskMs };
}

function measureSchema(
  file: string,
  { schema, tests }: MaskBenchFile,
  tokenizer: ChatTokenizer,
  vocabulary: Vocabulary,
  maskMs: number[],
): SchemaResult {
  const [logits, masked] = [new Float32Array(vocabulary.size), new Float32Array(vocabulary.size)];
  const start = performance.now();
  let configurations: Configurations;
  try {
    const builder = new GrammarBuilder();
    const { expression } = new SchemaCompiler(builder).document(schema as Readonly<Record<string, unknown>>);
    configurations = new Configurations(compileGrammar(builder.build(expression)), vocabulary.maxTokenBytes);
    new GrammarConstraint(configurations, vocabulary, tokenizer.eosTokenIds).masked(logits, masked);
  } catch (error) {
    return { file, refusal: String(error), firstMaskMs: performance.now() - start, wronglyRejected: 0, wronglyAccepted: 0 };
  }
  const firstMaskMs = performance.now() - start;
  let [wronglyRejected, wronglyAccepted] = [0, 0];
  for (const { valid, data } of tests) {
    const constraint = new GrammarConstraint(configurations, vocabulary, tokenizer.eosTokenIds);
    const accepted = accepts(constraint, [logits, masked], tokenizer.encode(spaced(data)), maskMs);
    if (valid && !accepted) wronglyRejected++;
    if (!valid && accepted) wronglyAccepted++;
  }
  return { file, refusal: null, firstMaskMs, wronglyRejected, wronglyAccepted };
}

/** Whether a constraint allows all tokens, one after another. Adds the time of each mask and step. */
function accepts(
  constraint: GrammarConstraint,
  [logits, masked]: readonly [Float32Array, Float32Array],
  tokens: ArrayLike<number>,
  maskMs: number[],
): boolean {
  for (let at = 0; at < tokens.length; at++) {
    const id = tokens[at]!;
    const start = performance.now();
    const isAllowed = constraint.masked(logits, masked)[id]! > -Infinity;
    if (isAllowed) constraint.record(id);
    maskMs.push(performance.now() - start);
    if (!isAllowed) return false;
  }
  return true;
}

/** Returns JSON with a space after commas and colons, as Python's `json.dumps` writes it. */
function spaced(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, member]) => `${JSON.stringify(name)}: ${spaced(member)}`)
    .join(", ")}}`;
}

function summary(name: string, results: readonly SchemaResult[], maskMs: number[]): string[] {
  const compiled = results.filter(({ refusal }) => refusal === null);
  const passed = compiled.filter(({ wronglyRejected, wronglyAccepted }) => wronglyRejected + wronglyAccepted === 0);
  const firstMs = compiled.map(({ firstMaskMs }) => firstMaskMs).sort((a, b) => a - b);
  maskMs.sort((a, b) => a - b);
  const at = (sorted: readonly number[], share: number) =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!.toFixed(3);
  const count = (test: (result: SchemaResult) => boolean) => String(compiled.filter(test).length);
  return [
    name,
    String(results.length),
    `${passed.length} (${((100 * passed.length) / results.length).toFixed(1)} %)`,
    String(results.length - compiled.length),
    count(({ wronglyRejected }) => wronglyRejected > 0),
    count(({ wronglyAccepted }) => wronglyAccepted > 0),
    ...[0.5, 0.99, 1].map((share) => at(firstMs, share)),
    ...[0.5, 0.99, 0.999, 1].map((share) => at(maskMs, share)),
  ];
}
