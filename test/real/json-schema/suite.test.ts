/**
 * Structured output by the schemas of the JSON Schema Test Suite, draft 2020-12:
 *
 *   git clone --depth 1 https://github.com/json-schema-org/JSON-Schema-Test-Suite <directory>
 *   WHETSTONE_JSON_SCHEMA_SUITE=<directory> npx vitest run --mode real test/real/json-schema
 *
 * A schema is accepted if a request with it would be, which a schema without valid values is not. The accepted ones may produce no invalid
 * text: neither a value that the suite lists as invalid, nor a text drawn from the grammar that ajv rejects. Both are checked after the
 * validation that the service applies to finished texts.
 */
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import ajvFormats from "ajv-formats";
import { describe, expect, it } from "vitest";
import { checkValidator, violationOf } from "../../../src/service/chat/answer/output-validation.ts";
import { compileOutput } from "../../../src/service/chat/generate/output-grammar.ts";
import type { Schema } from "../../../src/text/grammar/compile/schema/keywords.ts";
import { languageOf, type Language } from "../../grammar/compile/support.ts";
import { suiteCases, suiteDocuments, type SuiteCase } from "./cases.ts";

const { WHETSTONE_JSON_SCHEMA_SUITE: directory } = process.env;

const DRAWS = 20;
/** Formats that no grammar here enforces: they are annotations. */
const ANNOTATIONS = ["idn-email", "idn-hostname", "iri", "iri-reference"];

interface Accepted {
  readonly language: Language;
  readonly isValid: (text: string) => boolean;
}

/** Returns the grammar and validation of a schema; the message of the error if it is refused. */
function accepted(schema: Schema): Accepted | string {
  try {
    const form = { kind: "json", schema } as const;
    const { grammar, check } = compileOutput({ form, whitespacePattern: null, closesObjects: false }, { reasoningEnd: null });
    const checked = check?.kind === "json" ? check.schema : null;
    if (checked !== null) checkValidator(checked);
    return { language: languageOf(grammar), isValid: (text) => checked === null || violationOf(checked, text) === null };
  } catch (error) {
    return (error as Error).message;
  }
}

/** Returns ajv's validator of a schema; null if ajv cannot compile it, or differs from the suite itself. */
function referenceOf({ schema, values }: SuiteCase, documents: ReturnType<typeof suiteDocuments>): ValidateFunction | null {
  const ajv = new Ajv2020({ strict: false, logger: false, validateSchema: false, multipleOfPrecision: 6 });
  ajvFormats.default(ajv);
  for (const [uri, document] of documents) if (uri.includes("localhost")) ajv.addSchema(document, uri);
  try {
    const validator = ajv.compile(schema as object);
    return values.every(({ data, valid }) => validator(data) === valid) ? validator : null;
  } catch {
    return null;
  }
}

function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

describe.skipIf(directory === undefined)("the JSON Schema Test Suite (skipped without WHETSTONE_JSON_SCHEMA_SUITE)", () => {
  it("has at least 97 % of its schemas accepted, and no invalid output", { timeout: 600_000 }, () => {
    const [cases, documents] = [suiteCases(directory!), suiteDocuments(directory!)];
    const draw = generator(1);
    const refused: string[] = [];
    const wrong: string[] = [];
    const counts = { alone: 0, accepted: 0, texts: 0, compared: 0, fitting: 0, accepting: 0 };
    for (const each of cases) {
      if (typeof accepted(each.schema) !== "string") counts.alone++;
      const result = accepted(each.bundle);
      if (typeof result === "string") {
        refused.push(`${each.name}: ${result}`);
        continue;
      }
      counts.accepted++;
      const { language, isValid } = result;
      const isAnnotated = ANNOTATIONS.some((format) => JSON.stringify(each.schema).includes(`"format":"${format}"`));
      for (const { description, data, valid } of isAnnotated ? [] : each.values) {
        const text = JSON.stringify(data);
        const doesAccept = language.accepts(text) && isValid(text);
        if (!valid && doesAccept) wrong.push(`${each.name}: ${description}: ${text}`);
        if (valid) counts.fitting++;
        if (valid && doesAccept) counts.accepting++;
      }
      const reference = referenceOf(each, documents);
      if (reference !== null) counts.compared++;
      for (let turn = 0; turn < DRAWS; turn++) {
        const text = language.walk(draw);
        if (text === null || !isValid(text)) continue;
        counts.texts++;
        if (reference !== null && reference(JSON.parse(text)) !== true) wrong.push(`${each.name}: ${text}`);
      }
    }
    const share = (part: number, of: number) => `${part} of ${of} (${((100 * part) / of).toFixed(1)} %)`;
    console.log(
      [
        `accepted: ${share(counts.accepted, cases.length)}; without the documents that they refer to ${share(counts.alone, cases.length)}`,
        `texts drawn: ${counts.texts}; of ${counts.compared} schemas compared with ajv; invalid: ${wrong.length}`,
        `valid values of the suite that can be sampled in their order of members: ${share(counts.accepting, counts.fitting)}`,
        "refused:",
        ...refused,
      ].join("\n"),
    );
    expect(wrong).toEqual([]);
    expect(counts.accepted / cases.length).toBeGreaterThanOrEqual(0.97);
  });
});
