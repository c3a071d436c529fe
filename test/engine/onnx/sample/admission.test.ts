import { expect, test } from "vitest";
import { admit } from "../../../../src/engine/onnx/sample/admission.ts";
import { PrefixCache } from "../../../../src/engine/onnx/sample/prefix-cache.ts";
import { WaitingQueue } from "../../../../src/engine/onnx/sample/queue.ts";
import type { Request } from "../../../../src/engine/onnx/sample/request.ts";
import { params } from "./harness.ts";

/** Returns a queue of three prompts of 100 tokens that differ in their last token. */
function waiting(): WaitingQueue {
  const policy = { batchKey: "base" } as Request["policy"];
  const queue = new WaitingQueue();
  for (let id = 0; id < 3; id++) {
    const prompt = Int32Array.from({ length: 100 }, (_, t) => (t === 99 ? id : t));
    queue.add({ id, policyId: "p", policy, prompt, params: params(id), stops: new Set(), rules: null, constraint: null });
  }
  return queue;
}

test("prompts with a common beginning are prefilled one after the other with a prefix cache, and together without one", () => {
  const limits = { room: 8, maxTokens: 1000, maxPiece: Infinity };
  expect(admit(waiting(), new PrefixCache(2 ** 20), limits)!.prompts).toHaveLength(1);
  expect(admit(waiting(), new PrefixCache(0), limits)!.prompts).toHaveLength(3);
});

test("prompts longer than a piece are prefilled one after the other", () => {
  const limits = { room: 8, maxTokens: 1000 };
  expect(admit(waiting(), new PrefixCache(0), { ...limits, maxPiece: 112 })!.prompts).toHaveLength(3);
  expect(admit(waiting(), new PrefixCache(0), { ...limits, maxPiece: 96 })!.prompts).toHaveLength(1);
});
