import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { ArgumentError, DataError } from "../../src/base/errors.ts";
import { mergeTurns, readTurn, type TokenTurn } from "../../src/learner/index.ts";
import { choice } from "./helpers.ts";

function turn(prompt: readonly number[], sampled: readonly number[]): TokenTurn {
  return { prompt, sampled, logprobs: sampled.map((id) => -id / 100) };
}

const ids = fc.array(fc.nat(50), { minLength: 1, maxLength: 6 });

describe("mergeTurns", () => {
  it("continues a sequence if the next prompt starts with its tokens", () => {
    const { sequences, mergedTurns, driftedTurns } = mergeTurns([turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 5], [6])]);
    expect({ mergedTurns, driftedTurns }).toEqual({ mergedTurns: 1, driftedTurns: 0 });
    expect(sequences).toHaveLength(1);
    expect([...(sequences[0]?.tokens ?? [])]).toEqual([1, 2, 3, 4, 5, 6]);
    expect([...(sequences[0]?.mask ?? [])]).toEqual([0, 0, 1, 1, 0, 1]);
    expect([...(sequences[0]?.logprobs ?? [])]).toEqual([Number.NaN, Number.NaN, -0.03, -0.04, Number.NaN, -0.06]);
  });

  it.each([
    ["one sampled token was rendered differently", [1, 2, 3, 9, 5]],
    ["the prompt ends inside the turn before", [1, 2, 3]],
    ["the history was rewritten", [7]],
  ])("begins a new sequence, and counts it, when %s", (_, prompt) => {
    const { sequences, mergedTurns, driftedTurns } = mergeTurns([turn([1, 2], [3, 4]), turn(prompt, [6])]);
    expect({ mergedTurns, driftedTurns }).toEqual({ mergedTurns: 0, driftedTurns: 1 });
    expect(sequences.map((sequence) => [...sequence.tokens])).toEqual([
      [1, 2, 3, 4],
      [...prompt, 6],
    ]);
    expect([...(sequences[1]?.mask ?? [])]).toEqual([...prompt.map(() => 0), 1]);
  });

  it("returns no sequences without turns", () => {
    expect(mergeTurns([])).toEqual({ sequences: [], mergedTurns: 0, driftedTurns: 0 });
  });

  propertyTest.prop([fc.array(fc.tuple(fc.array(fc.nat(50), { maxLength: 4 }), ids), { minLength: 1, maxLength: 6 }), ids])(
    "merges a growing conversation into one sequence, in which each sampled token is trained once with its log-probability",
    (steps, start) => {
      let history = [...start];
      const turns = steps.map(([context, sampled]) => {
        const prompt = [...history, ...context];
        history = [...prompt, ...sampled];
        return turn(prompt, sampled);
      });
      const { sequences, mergedTurns, driftedTurns } = mergeTurns(turns);
      expect({ count: sequences.length, mergedTurns, driftedTurns }).toEqual({ count: 1, mergedTurns: steps.length - 1, driftedTurns: 0 });
      const [sequence] = sequences;
      expect([...(sequence?.tokens ?? [])]).toEqual(history);
      const trained = history.flatMap((id, index) => (sequence?.mask[index] === 1 ? [[id, sequence.logprobs[index]]] : []));
      expect(trained).toEqual(turns.flatMap(({ sampled, logprobs }) => sampled.map((id, index) => [id, logprobs[index]])));
    },
  );

  propertyTest.prop([fc.array(fc.tuple(ids, ids), { maxLength: 6 })])("keeps every sampled token exactly once for any prompts", (pairs) => {
    const turns = pairs.map(([prompt, sampled]) => turn(prompt, sampled));
    const { sequences, mergedTurns, driftedTurns } = mergeTurns(turns);
    const trained = sequences.flatMap(({ tokens, mask }) => [...tokens].filter((_, index) => mask[index] === 1));
    expect(trained).toEqual(turns.flatMap(({ sampled }) => sampled));
    expect(mergedTurns + driftedTurns + Math.min(1, turns.length)).toBe(turns.length);
    for (const { mask } of sequences) expect(mask[0]).toBe(0);
  });
});

describe("readTurn", () => {
  const where = "trajectory_groups.0.trajectories.2.messages_and_choices.1";

  it("reads ids and log-probabilities", () => {
    expect(readTurn(choice([1], [2, 3], [-0.5, -0.25]), where)).toEqual({ prompt: [1], sampled: [2, 3], logprobs: [-0.5, -0.25] });
  });

  it.each([
    ["token ids", { prompt_token_ids: null }],
    ["token ids", { token_ids: undefined }],
    ["log-probabilities", { logprobs: null }],
    ["log-probabilities", { logprobs: { content: null } }],
  ])("rejects a choice without %s, naming its location: %j", (name, change) => {
    const broken = { ...choice([1], [2]), ...change };
    expect(() => readTurn(broken, where)).toThrow(ArgumentError);
    expect(() => readTurn(broken, where)).toThrow(new RegExp(`${where}: A choice has no ${name}`));
  });

  it.each([
    ["as many log-probabilities", { token_ids: [2, 3] }],
    ["no prompt token", { prompt_token_ids: [] }],
    ["no sampled token", { token_ids: [], logprobs: { content: [] } }],
    ["not a finite number", { logprobs: { content: [{ token: "", logprob: Number.NaN, top_logprobs: [] }] } }],
    ["of at most 0", { logprobs: { content: [{ token: "", logprob: 0.5, top_logprobs: [] }] } }],
  ])("rejects an invalid choice: %s", (message, change) => {
    const broken = { ...choice([1], [2]), ...change };
    expect(() => readTurn(broken, where)).toThrow(DataError);
    expect(() => readTurn(broken, where)).toThrow(message);
    expect(() => readTurn(broken, where)).toThrow(where);
  });
});
