/** Random bodies, valid, nearly valid and invalid: none may cause a server error, a timeout or a leaked slot. */
import fc from "fast-check";
import { expect } from "vitest";
import type { Field } from "./case.ts";
import { outsideAddress, type Target } from "./target.ts";

/** Number of bodies; set `CONFORMANCE_FUZZ_RUNS` to change it. @default 500 */
export const FUZZ_RUNS = Number(process.env["CONFORMANCE_FUZZ_RUNS"] ?? 500);

/** Concurrent requests. */
const TOGETHER = 10;

const flag = fc.boolean();
const id = fc.nat(300);
const text = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.string({ unit: "grapheme", maxLength: 8 }),
  fc.constantFrom("the", "e", "\n", "🦊", "<|end|>"),
);
const words = fc.array(text, { maxLength: 3 });
const numbers = (min: number, max: number): fc.Arbitrary<number> => fc.double({ min, max, noNaN: true });
const object = fc.dictionary(fc.string({ maxLength: 5 }), fc.jsonValue({ maxDepth: 1 }), { maxKeys: 2 });
const tool = fc.record(
  {
    name: fc.constantFrom("add", "now", "a b"),
    description: text,
    parameters: fc.constantFrom({ type: "object" }, {}, { type: "object", properties: { a: { type: "integer" } } }),
  },
  { requiredKeys: ["name"] },
);
const content = fc.oneof(text, fc.array(fc.oneof(text, fc.record({ type: fc.constant("text"), text })), { maxLength: 2 }));
const message = fc.oneof(
  fc.record({ role: fc.constantFrom("user", "system", "developer", "assistant", "tool", "narrator"), content }),
  fc.record({
    role: fc.constant("assistant"),
    content: fc.constant(null),
    tool_calls: fc.array(
      tool.map((f) => ({ id: "1", type: "function", function: { name: f.name, arguments: "{}" } })),
      { maxLength: 2 },
    ),
  }),
  fc.record({ role: fc.constant("user"), content, name: text, extra: fc.jsonValue({ maxDepth: 1 }) }),
);

/** Valid values for each field; some contradict others. */
const VALUES: Readonly<Record<Field, fc.Arbitrary<unknown>>> = {
  messages: fc.array(message, { minLength: 1, maxLength: 4 }),
  model: fc.constantFrom(null, "", "whetstone-tiny", "no/such/model"),
  frequency_penalty: numbers(-2, 2),
  logit_bias: fc.dictionary(id.map(String), numbers(-200, 200), { maxKeys: 3 }),
  logprobs: flag,
  top_logprobs: fc.nat(20),
  max_tokens: fc.integer({ min: 1, max: 8 }),
  max_completion_tokens: fc.integer({ min: 1, max: 8 }),
  n: fc.integer({ min: 1, max: 3 }),
  presence_penalty: numbers(-2, 2),
  response_format: fc.constantFrom(
    { type: "text" },
    { type: "json_object" },
    { type: "json_schema", json_schema: { name: "a", schema: { type: "object" } } },
  ),
  seed: fc.maxSafeInteger(),
  stop: fc.oneof(text, words),
  stream: flag,
  stream_options: fc.record({ include_usage: flag, continuous_usage_stats: flag }, { requiredKeys: [] }),
  temperature: fc.oneof(fc.constant(0), numbers(0, 3)),
  top_p: numbers(0.01, 1),
  tools: fc.array(
    tool.map((f) => ({ type: "function", function: f })),
    { maxLength: 2 },
  ),
  tool_choice: fc.constantFrom("none", "auto", "required", { type: "function", function: { name: "add" } }),
  reasoning_effort: fc.constantFrom("low", "medium", "high"),
  include_reasoning: flag,
  parallel_tool_calls: flag,
  user: text,
  use_beam_search: flag,
  top_k: fc.integer({ min: -1, max: 600 }),
  min_p: numbers(0, 1),
  repetition_penalty: numbers(0.1, 3),
  length_penalty: numbers(-3, 3),
  stop_token_ids: fc.array(id, { maxLength: 3 }),
  include_stop_str_in_output: flag,
  ignore_eos: flag,
  min_tokens: fc.nat(4),
  skip_special_tokens: flag,
  spaces_between_special_tokens: flag,
  truncate_prompt_tokens: fc.integer({ min: -1, max: 20 }),
  prompt_logprobs: fc.nat(20),
  allowed_token_ids: fc.array(id, { minLength: 1, maxLength: 4 }),
  bad_words: words,
  echo: flag,
  add_generation_prompt: flag,
  continue_final_message: flag,
  add_special_tokens: flag,
  documents: fc.array(fc.dictionary(fc.string({ maxLength: 4 }), text, { maxKeys: 2 }), { maxLength: 2 }),
  chat_template: fc.constantFrom(null, "{{ messages }}"),
  chat_template_kwargs: object,
  mm_processor_kwargs: object,
  structured_outputs: fc.constantFrom(
    { choice: ["a", "b"] },
    { regex: "[ab]+" },
    { json: { type: "integer" } },
    { json_object: true },
    { grammar: 'root ::= "a"' },
  ),
  priority: fc.constantFrom(0, 0, 1),
  request_id: text,
  return_tokens_as_token_ids: flag,
  return_token_ids: flag,
  cache_salt: fc.string({ minLength: 1, maxLength: 8 }),
  kv_transfer_params: object,
  engine_xargs: fc.dictionary(fc.string({ maxLength: 4 }), fc.oneof(text, fc.integer(), fc.array(text)), { maxKeys: 2 }),
  repetition_detection: fc.record({ max_pattern_size: fc.nat(4), min_pattern_size: fc.nat(2), min_count: fc.nat(4) }),
};
const FIELDS = Object.keys(VALUES) as Field[];

type Body = Record<string, unknown>;

/** A few fields with a short conversation, so that requests complete quickly. */
const valid: fc.Arbitrary<Body> = fc.uniqueArray(fc.constantFrom(...FIELDS), { maxLength: 7 }).chain((chosen) => {
  const fields: Record<string, fc.Arbitrary<unknown>> = { messages: VALUES.messages, max_tokens: VALUES.max_tokens };
  for (const field of chosen) fields[field] = VALUES[field];
  return fc.record(fields);
});

const anything = fc.oneof(
  fc.jsonValue({ maxDepth: 2 }),
  fc.constantFrom<unknown>(
    null,
    true,
    "",
    "2",
    "true",
    -1,
    0.5,
    1e300,
    -1e300,
    2 ** 53,
    "9223372036854775808",
    [],
    {},
    [[]],
    [null],
    { type: 5 },
    "\ud800",
    "\0",
  ),
);

/** Returns mutations of a value: any value, the value as text, in an array, or with one part changed. */
function mutant(value: unknown): fc.Arbitrary<unknown> {
  const others = [anything, fc.constant(typeof value === "string" ? Number(value) : (JSON.stringify(value) ?? null)), fc.constant([value])];
  if (typeof value !== "object" || value === null || Object.keys(value).length === 0) return fc.oneof(...others);
  const inside = fc
    .constantFrom(...Object.keys(value))
    .chain((key) =>
      mutant((value as Body)[key]).map((changed) =>
        Array.isArray(value) ? value.map((each: unknown, at) => (String(at) === key ? changed : each)) : { ...value, [key]: changed },
      ),
    );
  return fc.oneof({ arbitrary: fc.oneof(...others), weight: 1 }, { arbitrary: inside, weight: 2 });
}

const mutated: fc.Arbitrary<Body> = valid.chain((body) =>
  fc
    .constantFrom(...Object.keys(body), ...FIELDS, "unknown", "__proto__")
    .chain((field) => mutant(body[field] ?? null).map((value) => ({ ...body, [field]: value }))),
);

/** Text that is nearly JSON: cut off, with a duplicate key, or with inserted text. */
const mangled: fc.Arbitrary<string> = fc
  .tuple(valid, fc.nat(), fc.constantFrom("cut", "twice", "thrown"), fc.string({ maxLength: 3 }))
  .map(([body, at, how, more]) => {
    const json = JSON.stringify(body);
    const place = at % (json.length + 1);
    if (how === "cut") return json.slice(0, place);
    if (how === "twice") return json.replace(/\}$/u, `,"seed":99999999999999999999,"n":${place}e400}`);
    return json.slice(0, place) + more + json.slice(place);
  });

interface Attempt {
  readonly body: string;
  /** Milliseconds after which the client disconnects; null waits for the response. */
  readonly leavesAfterMs: number | null;
}

const attempt: fc.Arbitrary<Attempt> = fc.record({
  body: fc.oneof(
    { arbitrary: valid.map((body) => JSON.stringify(body)), weight: 4 },
    { arbitrary: mutated.map((body) => JSON.stringify(body)), weight: 5 },
    { arbitrary: mangled, weight: 1 },
  ),
  leavesAfterMs: fc.oneof({ arbitrary: fc.constant(null), weight: 12 }, { arbitrary: fc.nat(20), weight: 1 }),
});

/** Sends one body and reads the whole response; returns its status, 0 after a disconnect. Throws for an invalid response. */
async function answer(target: Target, { body, leavesAfterMs }: Attempt): Promise<number> {
  const client = new AbortController();
  const timer = leavesAfterMs === null ? null : setTimeout(() => client.abort(), leavesAfterMs);
  try {
    const response = await target.send(body, { signal: client.signal });
    const answered = await response.text();
    const isStream = response.headers.get("content-type")?.includes("text/event-stream") === true;
    if (response.status >= 500) throw new Error(`${response.status} ${answered.slice(0, 300)}`);
    if (isStream && !answered.endsWith("data: [DONE]\n\n")) throw new Error(`A stream without an end: ${answered.slice(-300)}`);
    if (isStream && /"code":5\d\d\}/u.test(answered)) throw new Error(`A server error in a stream: ${answered.slice(-300)}`);
    if (!isStream) JSON.parse(answered);
    return response.status;
  } catch (error) {
    if (!client.signal.aborted) throw error;
    return 0;
  } finally {
    if (timer !== null) clearTimeout(timer);
  }
}

/** Maximum time until slots of disconnected clients are free again, milliseconds. */
const FREE_WITHIN_MS = 60_000;

/** Sends {@link FUZZ_RUNS} bodies concurrently, then requests as many choices as the service allows: no slot may be leaked. */
export async function fuzz(target: Target): Promise<void> {
  const several = fc.array(attempt, { minLength: TOGETHER, maxLength: TOGETHER });
  const statuses = new Map<number, number>();
  await fc.assert(
    fc.asyncProperty(several, async (attempts) => {
      for (const status of await Promise.all(attempts.map((each) => answer(target, each))))
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }),
    { numRuns: Math.ceil(FUZZ_RUNS / TOGETHER), endOnFailure: true },
  );
  // The test would be weak if all bodies were rejected, or all accepted.
  for (const status of [200, 400]) expect(statuses.get(status) ?? 0, `answers ${status}`).toBeGreaterThan(FUZZ_RUNS / 10);
  if (outsideAddress() !== null) return void (await target.complete({ max_tokens: 1 }));
  const giveUpAtMs = performance.now() + FREE_WITHIN_MS;
  for (;;) {
    const everything = Array.from({ length: 16 }, () => target.send({ n: 128, max_tokens: 2 }));
    const answered = (await Promise.all(everything)).map((response) => response.status);
    if (answered.every((status) => status === 200)) return;
    if (performance.now() > giveUpAtMs) expect(answered).toEqual(Array(16).fill(200));
  }
}
