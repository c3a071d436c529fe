import { expect, test } from "vitest";
import { admit, type AdmissionLimits } from "../../../../src/engine/onnx/sample/admission.ts";
import { PrefixCache } from "../../../../src/engine/onnx/sample/prefix-cache.ts";
import { WaitingQueue } from "../../../../src/engine/onnx/sample/queue.ts";
import { cacheScope, type Request } from "../../../../src/engine/onnx/sample/request.ts";
import { params } from "./harness.ts";

/** Returns a queue of three prompts that differ in their last token. */
function waiting(length = 100): WaitingQueue {
  const policy = { batchKey: "base", weights: { config: { rope: { kind: "none" } } } } as Request["policy"];
  const queue = new WaitingQueue();
  for (let id = 0; id < 3; id++) {
    const prompt = Int32Array.from({ length }, (_, t) => (t === length - 1 ? id : t));
    queue.add({
      id,
      policyId: "p",
      policy,
      prompt,
      sampled: 0,
      params: params(id),
      stops: new Set(),
      rules: null,
      constraint: null,
      group: { client: "", id },
    });
  }
  return queue;
}

/** Returns the number of prompts that are prefilled together. */
function count(cacheBytes: number, place: Partial<AdmissionLimits["place"]> = {}): number {
  const limits = { room: 8, maxTokens: 1000, place: { maxPiece: Infinity, minSharedPrefix: 96, continuesSeveral: true, ...place } };
  const queue = waiting();
  return admit(queue, [...queue][0]!, new PrefixCache(cacheBytes), limits)!.prompts.length;
}

test("prompts with a common beginning are prefilled one after the other with a prefix cache, and together without one", () => {
  expect(count(2 ** 20)).toBe(1);
  expect(count(0)).toBe(3);
});

test("prompts with a common beginning too short for a separate prefill are prefilled together", () => {
  expect(count(2 ** 20, { minSharedPrefix: 112 })).toBe(3);
});

test("prompts longer than a piece are prefilled one after the other", () => {
  expect(count(0, { maxPiece: 112 })).toBe(3);
  expect(count(0, { maxPiece: 96 })).toBe(1);
});

test("prompts with the same cached prefix are prefilled together where the place continues several, else one at a time", () => {
  const admitted = (continuesSeveral: boolean, differsAt: number) => {
    const queue = waiting();
    const [first] = queue;
    const prefixes = new PrefixCache(2 ** 20);
    // The first 48 tokens of all prompts are in the cache.
    prefixes.keep(first!.policy, cacheScope(first!), first!.prompt, 48, () => ({
      memory: { bytes: 1, hold: () => {}, release: () => {} },
    }));
    for (const { id, prompt } of queue) prompt[differsAt] = 1000 + id;
    const place = { maxPiece: Infinity, minSharedPrefix: 32, continuesSeveral };
    return admit(queue, first!, prefixes, { room: 8, maxTokens: 1000, place })!;
  };
  expect(admitted(true, 60).known.map((blocks) => blocks.length)).toEqual([3, 3, 3]);
  expect(admitted(false, 60).known.map((blocks) => blocks.length)).toEqual([3]);
  // The prompts agree in 32 further tokens, which the first one adds to the cache.
  expect(admitted(true, 85).known.map((blocks) => blocks.length)).toEqual([3]);
});

test("prompts with long cached prefixes are prefilled together up to 4,096 tokens", () => {
  const admitted = (length: number) => {
    const queue = waiting(length);
    const [first] = queue;
    const prefixes = new PrefixCache(2 ** 20);
    const memory = { bytes: 1, hold: () => {}, release: () => {} };
    prefixes.keep(first!.policy, cacheScope(first!), first!.prompt, length, () => ({ memory }));
    const place = { maxPiece: Infinity, minSharedPrefix: 32, continuesSeveral: true };
    return admit(queue, first!, prefixes, { room: 8, maxTokens: 1000, place })!.prompts.length;
  };
  expect([1300, 2000, 2100].map(admitted)).toEqual([3, 2, 1]);
});
