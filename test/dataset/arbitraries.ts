/** Trajectories and groups as other writers may have them: everything optional, with keys that nobody knows. */
import { fc } from "@fast-check/vitest";

// JSON has no negative zero: it comes back as 0, which is equal but not the same to a test.
const number = fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => (value === 0 ? 0 : value));
const id = fc.integer({ min: 0, max: 300_000 });
const text = fc.oneof(fc.string(), fc.string({ unit: "grapheme" }), fc.string({ unit: "binary" }));
const other = fc.dictionary(
  fc.string({ minLength: 1 }).map((key) => `x_${key}`),
  fc.jsonValue().map((value) => JSON.parse(JSON.stringify(value)) as unknown),
  { maxKeys: 2 },
);
const scalar = fc.oneof(number, text, fc.boolean(), fc.constant(null));
const names = fc.string({ minLength: 1 }).map((key) => `n_${key}`);

/** With keys that nobody knows. */
const loose = <T extends object>(known: fc.Arbitrary<T>): fc.Arbitrary<T> => fc.tuple(known, other).map(([a, b]) => ({ ...a, ...b }));
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: null });

const alternative = { token: text, logprob: number, bytes: optional(fc.array(fc.nat(255), { maxLength: 3 })) };
const entry = loose(
  fc.record(
    { ...alternative, top_logprobs: fc.array(loose(fc.record(alternative, { requiredKeys: ["token", "logprob"] })), { maxLength: 2 }) },
    { requiredKeys: ["token", "logprob"] },
  ),
);
const call = loose(fc.record({ id: text, type: fc.constant("function"), function: loose(fc.record({ name: text, arguments: text })) }));
const message = loose(
  fc.record(
    { role: fc.constantFrom("user", "assistant", "tool", "system"), content: optional(text), tool_calls: fc.array(call, { maxLength: 2 }) },
    { requiredKeys: ["role"] },
  ),
);
/** A sampled turn. */
export const choiceValue = loose(
  fc.record(
    {
      index: fc.nat(3),
      message: loose(fc.record({ role: fc.constant("assistant"), content: optional(text) }, { requiredKeys: ["role"] })),
      logprobs: optional(loose(fc.record({ content: optional(fc.array(entry, { maxLength: 3 })) }, { requiredKeys: [] }))),
      finish_reason: optional(text),
      token_ids: optional(fc.array(id, { maxLength: 4 })),
      prompt_token_ids: optional(fc.array(id, { maxLength: 4 })),
      policy_version: optional(fc.nat()),
    },
    { requiredKeys: ["message"] },
  ),
);
const items = fc.array(fc.oneof(message, choiceValue), { maxLength: 4 });
const facts = {
  metrics: fc.dictionary(names, fc.oneof(number, fc.boolean()), { maxKeys: 3 }),
  metadata: fc.dictionary(names, scalar, { maxKeys: 3 }),
  logs: fc.array(text, { maxLength: 2 }),
};

/** The wire form of a trajectory. */
export const trajectoryValue = loose(
  fc.record(
    {
      messages_and_choices: items,
      additional_histories: fc.array(loose(fc.record({ messages_and_choices: items })), { maxLength: 2 }),
      reward: number,
      initial_policy_version: optional(fc.nat()),
      ...facts,
      start_time: optional(text),
    },
    { requiredKeys: ["messages_and_choices"] },
  ),
);

/** The wire form of a group. */
export const groupValue = loose(
  fc.record(
    {
      trajectories: fc.array(trajectoryValue, { maxLength: 3 }),
      exceptions: fc.array(loose(fc.record({ type: text, message: text, traceback: text }, { requiredKeys: ["type", "message"] })), {
        maxLength: 2,
      }),
      ...facts,
    },
    { requiredKeys: ["trajectories"] },
  ),
);
