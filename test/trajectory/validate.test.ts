import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { validateTrajectory, validateTrajectoryGroup } from "../../src/base/trajectory/validate.ts";
import { trajectory, trajectoryGroup } from "../../src/base/schema/index.ts";
import { choiceValue, groupValue, trajectoryValue } from "../dataset/arbitraries.ts";

const copy = (value: unknown) => JSON.parse(JSON.stringify(value)) as unknown;

/** Every place inside a JSON value. */
function places(value: unknown, path: readonly (string | number)[] = []): (readonly (string | number)[])[] {
  if (typeof value !== "object" || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([key, inner]) => places(inner, [...path, key]))];
}

function put(value: unknown, [key, ...rest]: readonly (string | number)[], replacement: unknown): unknown {
  if (key === undefined) return replacement;
  const made = (Array.isArray(value) ? [...(value as unknown[])] : { ...(value as object) }) as Record<string, unknown>;
  made[key] = put(made[key], rest, replacement);
  return made;
}

/** Expects the same verdict of both validators. */
function expectAgreement(value: unknown): void {
  const expected = trajectory.safeParse(copy(value));
  const result = validateTrajectory(copy(value));
  expect(result.success).toBe(expected.success);
  if (expected.success) expect(result.data).toEqual(expected.data);
  else expect(result.error?.issues).toEqual(expected.error.issues);
}

describe("fast validation agrees with the schema", () => {
  test.prop([trajectoryValue], { numRuns: 200 })("on valid values", (value) => {
    expect(trajectory.safeParse(copy(value)).success).toBe(true);
    expectAgreement(value);
  });

  // The same value with one place in it replaced by something else: of another type, missing, out of range.
  const broken = fc
    .tuple(
      fc.record({ messages_and_choices: fc.array(choiceValue, { minLength: 1, maxLength: 2 }) }),
      fc.nat(),
      fc.constantFrom(
        null,
        "text",
        0.5,
        -1,
        2 ** 53,
        true,
        [],
        {},
        [null],
        [0.5],
        [{}],
        { role: "user" },
        { content: [{ token: "a" }] },
        undefined,
      ),
    )
    .map(([value, at, replacement]) => {
      const all = places(value);
      return put(value, all[at % all.length] as (string | number)[], replacement);
    });
  test.prop([broken], { numRuns: 500 })("on values with one invalid part, with the same issues", (value) => {
    if (value !== undefined) expectAgreement(value);
  });

  test.prop([groupValue], { numRuns: 60 })("on groups", (value) => {
    expect(validateTrajectoryGroup(copy(value))).toEqual(trajectoryGroup.safeParse(copy(value)));
  });

  const entry = { token: "a", logprob: -1 };
  const turn = (more: object) => ({ messages_and_choices: [{ message: { role: "assistant" }, ...more }] });
  it.each([
    [turn({ logprobs: { content: [entry] } })],
    [turn({ logprobs: { content: [{ ...entry, logprob: "-1" }] } })],
    [turn({ logprobs: { content: [{ ...entry, bytes: [0.5] }] } })],
    [turn({ logprobs: { content: [{ ...entry, top_logprobs: null }] } })],
    [turn({ logprobs: { content: [{ ...entry, top_logprobs: [{ token: "b" }] }] } })],
    [turn({ logprobs: { content: [null] } })],
    [turn({ token_ids: [1, "2"] })],
    [turn({ prompt_token_ids: [2 ** 53] })],
    // An item that is not a valid choice but passes as a message keeps its other keys.
    [{ messages_and_choices: [{ role: "user", message: {}, logprobs: { content: [entry] }, token_ids: [1] }] }],
    [{ messages_and_choices: [{ role: "user", message: { role: "assistant" }, index: "x", token_ids: [1] }] }],
    [[]],
    [null],
  ])("on %j", (value) => expectAgreement(value));
});
