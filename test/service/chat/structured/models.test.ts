/**
 * Schemas from client libraries: 102 pydantic models, in validation and serialization mode, and 97 zod models in every draft that zod
 * writes. All compile, and generated values are valid for ajv with formats, except for keywords that are left to the validation,
 * which then reports the same result as ajv.
 */
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import ajvFormats from "ajv-formats";
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { compileOutput } from "../../../../src/service/chat/generate/output-grammar.ts";
import { violationOf } from "../../../../src/service/chat/answer/output-validation.ts";
import type { SchemaObject } from "../../../../src/text/grammar/compile/schema/keywords.ts";
import { languageOf } from "../../../grammar/compile/support.ts";
import { ZOD_MODELS, ZOD_OPTIONS } from "./zod-models.ts";
import { randomCases } from "../../../support/random-cases.ts";

interface Case {
  readonly name: string;
  readonly schema: SchemaObject;
  /** Equivalent schema for ajv, if ajv does not support the draft of `schema`. */
  readonly readable: SchemaObject;
}

/** Returns the cases without duplicate schemas, because modes and drafts are mostly equal. */
function different(cases: readonly Case[]): Case[] {
  const withoutDraft = ({ $schema: _draft, ...rest }: SchemaObject) => rest;
  return [
    ...new Map(cases.map((each) => [JSON.stringify(withoutDraft(each.schema)), { ...each, schema: withoutDraft(each.schema) }])).values(),
  ];
}

function pydanticCases(): Case[] {
  const { models } = JSON.parse(gunzipSync(readFileSync(new URL("../../../oracle/schema-models.json.gz", import.meta.url))).toString()) as {
    readonly models: Readonly<Record<string, Readonly<Record<string, SchemaObject>>>>;
  };
  return different(
    Object.entries(models).flatMap(([name, modes]) =>
      Object.entries(modes).map(([mode, schema]) => ({ name: `${name}, ${mode}`, schema, readable: schema })),
    ),
  );
}

function zodCases(): Case[] {
  return different(
    Object.entries(ZOD_MODELS).flatMap(([name, model]) =>
      ZOD_OPTIONS.map((options) => {
        const schema = z.toJSONSchema(model, options) as SchemaObject;
        const readable = z.toJSONSchema(model, { ...options, target: "draft-2020-12" }) as SchemaObject;
        return { name: `${name}, ${options.target}, ${options.io}, ${options.reused}`, schema, readable };
      }),
    ),
  );
}

/** Compiles patterns with the flag `u`, or without it if they have escapes that it forbids. */
const regExp = Object.assign(
  (pattern: string): RegExp => {
    try {
      return new RegExp(pattern, "u");
    } catch {
      return new RegExp(pattern);
    }
  },
  { code: "" },
);

// Decimal multiples are compared up to rounding. Each instance compiles the schema of schemas anew.
const ajv = new Ajv2020({ strict: false, logger: false, multipleOfPrecision: 6, code: { regExp } });
ajvFormats.default(ajv);

function compiled(schema: SchemaObject): ValidateFunction {
  try {
    return ajv.compile(schema);
  } finally {
    ajv.removeSchema(schema);
  }
}

function ajvOf({ schema, readable }: Case): ValidateFunction {
  try {
    return compiled(schema);
  } catch {
    return compiled(readable);
  }
}

function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

describe.each([
  ["pydantic", pydanticCases, randomCases(11), 1],
  ["zod", zodCases, randomCases(6), 0],
] as const)("schemas of %s", (_library, casesOf, perSchema, least) => {
  it("compile, and their outputs are valid for ajv unless the validation rejects them too", () => {
    const draw = generator(1);
    const counts = { outputs: 0, found: 0 };
    const wrong: string[] = [];
    for (const each of casesOf()) {
      const form = { kind: "json", schema: each.schema } as const;
      const { grammar, check } = compileOutput({ form, whitespacePattern: null, closesObjects: false }, { reasoningEnd: null });
      const language = languageOf(grammar);
      const isValid = ajvOf(each);
      for (let made = 0, turn = 0; made < perSchema && turn < 2 * perSchema; turn++) {
        const text = language.walk(draw);
        if (text === null) continue;
        made++;
        const value: unknown = JSON.parse(text);
        const violation = check === null ? null : violationOf(JSON.stringify(each.schema), text);
        counts.outputs++;
        if (violation !== null) counts.found++;
        if (isValid(value) !== (violation === null)) wrong.push(`${each.name}: ${text} ${JSON.stringify(isValid.errors)} ${violation}`);
      }
    }
    expect(wrong).toEqual([]);
    // Few schemas have no output that is short enough.
    expect(counts.outputs).toBeGreaterThan(0.9 * perSchema * casesOf().length);
    // The validation rejects some outputs, but few.
    expect(counts.found).toBeLessThan(counts.outputs / 20);
    expect(counts.found).toBeGreaterThanOrEqual(least);
  }, 120_000);
});
