/** Cases 60 to 64, and cases for `response_format`: constrained output. */
import { Ajv } from "ajv";
import { expect } from "vitest";
import type { ConformanceCase } from "../case.ts";
import { outsideAddress, type Target } from "../target.ts";

const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 8 },
    age: { type: "integer", minimum: 0, maximum: 150 },
    tags: { type: "array", items: { enum: ["a", "b"] }, maxItems: 3 },
  },
  required: ["name", "age"],
  additionalProperties: false,
} as const;
const isPerson = new Ajv().compile(SCHEMA);
/** The penalty stops a small model from repeating white space, which JSON allows without limit. */
const LONG = { max_tokens: 200, seed: 7, frequency_penalty: 2 };

/** Returns the JSON of a complete answer; null if another model than the shipped one was cut off. */
function finishedJson({ message, finish_reason }: any): unknown {
  if (outsideAddress() === null) expect(finish_reason, message.content).toBe("stop");
  return finish_reason === "stop" ? JSON.parse(message.content) : null;
}

function expectPerson(choice: any): void {
  const person = finishedJson(choice);
  if (person !== null) expect(isPerson(person), choice.message.content).toBe(true);
}

/** Settings that close any object soon: only a few tokens of JSON objects and the end token are allowed. */
async function shortObjects(target: Target): Promise<object> {
  const body = { structured_outputs: { choice: ['{"a": "b"}'] }, temperature: 0, max_tokens: 30, return_token_ids: true };
  const { token_ids } = await target.choice(body);
  return { max_tokens: 200, frequency_penalty: 1, allowed_token_ids: [...new Set(token_ids as number[])] };
}

export const structured: readonly ConformanceCase[] = [
  {
    number: 60,
    title: "choice, regex, schema and json_object constrain the output",
    fields: ["structured_outputs"],
    run: async (target) => {
      const short = await shortObjects(target);
      for (let seed = 0; seed < 4; seed++) {
        const body = { ...LONG, seed };
        expect(["left", "right"]).toContain(await target.text({ ...body, structured_outputs: { choice: ["left", "right"] } }));
        expect(await target.text({ ...body, structured_outputs: { regex: "[a-c]{2,4}-[0-9]{1,3}\\.[0-9]{2}" } })).toMatch(
          /^[a-c]{2,4}-[0-9]{1,3}\.[0-9]{2}$/,
        );
        for (const json of [SCHEMA, JSON.stringify(SCHEMA)]) {
          expectPerson(await target.choice({ ...body, structured_outputs: { json } }));
        }
        const json_object = { structured_outputs: { json_object: true } };
        expect(finishedJson(await target.choice({ ...short, seed, ...json_object }))).toBeTypeOf("object");
        expect(await target.text({ ...body, max_tokens: 16, ...json_object })).toMatch(/^\s*\{/u);
      }
    },
  },
  {
    number: 61,
    title: "log-probabilities under a constraint are at least -9999",
    fields: ["structured_outputs", "logprobs"],
    run: async (target) => {
      const choice = await target.choice({ ...LONG, structured_outputs: { choice: ["left", "right"] }, logprobs: true, top_logprobs: 5 });
      for (const { logprob, top_logprobs: top } of choice.logprobs.content)
        for (const value of [logprob, ...top.map((each: any) => each.logprob)]) expect(value).toBeGreaterThanOrEqual(-9999);
    },
  },
  {
    number: 62,
    title: "rejects an invalid regex, and a schema, regex or grammar that does not compile",
    fields: ["structured_outputs"],
    run: async (target) => {
      for (const structured_outputs of [
        { regex: { type: "object" } },
        { json: { type: "no such type" } },
        { json: "{" },
        { regex: "[.*" },
        { grammar: "root ::= (" },
        { grammar: "" },
      ]) {
        for (const stream of [false, true]) {
          const { status, message } = await target.refused({ structured_outputs, stream, max_tokens: 8 });
          expect(status, JSON.stringify(structured_outputs)).toBe(400);
          expect(message).not.toContain("not supported");
        }
      }
    },
  },
  {
    number: 63,
    title: "rejects no constraint, two constraints, and an empty choice",
    fields: ["structured_outputs"],
    run: async (target) => {
      for (const structured_outputs of [{}, { regex: "a", json: {} }, { choice: [] }, { json_object: false }])
        expect(await target.refused({ structured_outputs }), JSON.stringify(structured_outputs)).toMatchObject({ status: 400 });
    },
  },
  {
    number: 64,
    title: "response_format text constrains nothing; json_schema without a schema is rejected",
    fields: ["response_format"],
    run: async (target) => {
      const body = { seed: 1, max_tokens: 12 };
      expect(await target.text({ ...body, response_format: { type: "text" } })).toBe(await target.text(body));
      expect(await target.refused({ response_format: { type: "json_schema" } })).toMatchObject({
        status: 400,
        param: "response_format",
        message: expect.stringContaining("must be provided"),
      });
    },
  },
  {
    number: 106,
    title: "response_format constrains the output in every form",
    fields: ["response_format"],
    run: async (target) => {
      for (const response_format of [
        { type: "json_schema", json_schema: { name: "person", schema: SCHEMA } },
        { type: "json_schema", json_schema: { name: "person", schema: SCHEMA, strict: true, description: "somebody" } },
      ]) {
        expectPerson(await target.choice({ ...LONG, response_format }));
      }
      const object = await target.choice({ ...(await shortObjects(target)), seed: 7, response_format: { type: "json_object" } });
      expect(finishedJson(object)).toBeTypeOf("object");
      for (const response_format of [{ type: "xml" }, { type: "json_schema", json_schema: { name: "person" } }])
        expect(await target.refused({ response_format })).toMatchObject({ status: 400 });
    },
  },
  {
    number: 107,
    title: "a structural tag constrains only the text between its tags",
    fields: ["structured_outputs"],
    run: async (target) => {
      const structural_tag = JSON.stringify({
        type: "structural_tag",
        format: { type: "tag", begin: "<n>", content: { type: "regex", pattern: "[0-9]{2}" }, end: "</n>" },
      });
      expect(await target.text({ ...LONG, structured_outputs: { structural_tag } })).toMatch(/^<n>[0-9]{2}<\/n>$/);
    },
  },
  {
    number: 108,
    title: "supports a grammar, and the options of structured outputs",
    fields: ["structured_outputs"],
    run: async (target) => {
      const grammar = 'root ::= "a" (" b")* " c"';
      expect(await target.text({ ...LONG, structured_outputs: { grammar } })).toMatch(/^a( b)* c$/);
      const compact = { json: SCHEMA, disable_any_whitespace: true, disable_fallback: true };
      const person = await target.choice({ ...LONG, structured_outputs: compact });
      expectPerson(person);
      expect(person.message.content.replaceAll(/"(?:[^"\\]|\\.)*"/gu, "")).not.toMatch(/\s/);
    },
  },
];
