/**
 * Cost of a grammar per token: the mask of the permitted tokens of a vocabulary of 32,000, applied to a row of logits, and
 * the step by the token that was sampled.
 *
 *   npm run bench -- grammar [--texts 40] [--tokens 200]
 *
 * The texts of each schema are sampled from its grammar, one after another, with the caches of the texts
 * before, as in a service.
 */
import { parseArgs } from "node:util";
import { GrammarBuilder } from "../../src/text/grammar/expression.ts";
import { compileGrammar } from "../../src/text/grammar/decode/automaton.ts";
import { Configurations } from "../../src/text/grammar/decode/configurations.ts";
import { GrammarConstraint } from "../../src/text/grammar/decode/constraint.ts";
import { Vocabulary } from "../../src/text/grammar/decode/vocabulary.ts";
import { SchemaCompiler } from "../../src/text/grammar/compile/schema/compiler.ts";
import { benchVocabulary, END_TOKEN_ID } from "./grammar-vocabulary.ts";
import { printTable, whole } from "./support.ts";

/** Target of the median. */
const LIMIT_MS = 0.3;

const SCHEMAS: Readonly<Record<string, object>> = {
  "a closed record with bounds": {
    type: "object",
    properties: {
      name: { type: "string", minLength: 1, maxLength: 400 },
      age: { type: "integer", minimum: 0, maximum: 120 },
      role: { enum: ["admin", "editor", "viewer"] },
      score: { type: "number", minimum: 0, maximum: 1 },
      born: { type: "string", format: "date" },
      tags: { type: "array", items: { type: "string", maxLength: 20 }, maxItems: 5 },
    },
    required: ["name", "age", "role", "score", "born", "tags"],
    additionalProperties: false,
  },
  "a tree that recurs": {
    $ref: "#/$defs/node",
    $defs: {
      node: {
        type: "object",
        properties: { label: { type: "string" }, children: { type: "array", items: { $ref: "#/$defs/node" }, maxItems: 3 } },
        required: ["label", "children"],
        additionalProperties: false,
      },
    },
  },
  "any object": { type: "object" },
};

function quantile(sorted: readonly number[], share: number): string {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!.toFixed(3);
}

export function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { texts: { type: "string", default: "40" }, tokens: { type: "string", default: "200" } } });
  const [texts, tokens] = [whole("texts", values.texts), whole("tokens", values.tokens)];
  const started = performance.now();
  const vocabulary = new Vocabulary(benchVocabulary());
  console.log(
    `${vocabulary.size} tokens, read in ${(performance.now() - started).toFixed(0)} ms; ${texts} texts of at most ${tokens} tokens per schema; ms per token\n`,
  );
  let state = 1;
  const draw = (below: number): number => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % below;
  const logits = Float32Array.from({ length: vocabulary.size }, () => draw(1000) / 100);
  const rows = Object.entries(SCHEMAS).map(([label, schema]) => {
    const compiling = performance.now();
    const builder = new GrammarBuilder();
    const automaton = compileGrammar(
      builder.build(new SchemaCompiler(builder).document(schema as Readonly<Record<string, unknown>>).expression),
    );
    const compiled = performance.now() - compiling;
    const configurations = new Configurations(automaton, vocabulary.maxTokenBytes);
    const masks: number[] = [];
    const steps: number[] = [];
    for (let text = 0; text < texts; text++) {
      const constraint = new GrammarConstraint(configurations, vocabulary, [END_TOKEN_ID]);
      for (let count = 0; count < tokens; count++) {
        const begun = performance.now();
        const masked = constraint.masked(logits);
        const between = performance.now();
        const allowed: number[] = [];
        for (let id = 0; id < masked.length; id++) if (masked[id]! > -Infinity) allowed.push(id);
        const id = allowed[draw(allowed.length)]!;
        const again = performance.now();
        constraint.record(id);
        masks.push(between - begun);
        steps.push(performance.now() - again);
        if (id === END_TOKEN_ID) break;
      }
    }
    masks.sort((a, b) => a - b);
    steps.sort((a, b) => a - b);
    return [
      label,
      compiled.toFixed(1),
      String(masks.length),
      quantile(masks, 0.5),
      quantile(masks, 0.9),
      quantile(masks, 0.99),
      quantile(masks, 1),
      quantile(steps, 0.5),
      quantile(steps, 0.99),
    ];
  });
  printTable(["", "compiled, ms", "tokens", "mask: median", "p90", "p99", "most", "step: median", "p99"], rows);
  const worst = Math.max(...rows.map((row) => Number(row[3])));
  console.log(`\nlargest median ${worst.toFixed(3)} ms, ${worst <= LIMIT_MS ? "within" : "beyond"} the ${LIMIT_MS} ms aimed at`);
  return Promise.resolve();
}
