import { expect, test } from "vitest";
import { packEvents, unpackEvents } from "../../../../src/engine/onnx/sample/packed-events.ts";
import type { SampledEvent } from "../../../../src/engine/onnx/sample/request.ts";

const top = (...ids: number[]) => ids.map((id) => ({ id, logprob: -id / 3 }));

test("sampled tokens are equal after the transfer to another thread, and their alternatives are not objects meanwhile", () => {
  const events: SampledEvent[] = [
    {
      request: 3,
      token: { id: 7, logprob: -0.1, top: top(7, 8), cachedTokens: 16, prompt: [{ id: 5, logprob: -2, rank: 4, top: top(1) }] },
    },
    { request: 4, token: { id: 1, logprob: -1 / 3, top: [], finish: "length", cachedTokens: 0 } },
    { request: 3, token: { id: 9, logprob: -Infinity, top: top(2, 3, 4), finish: "stop" } },
  ];
  const packed = packEvents(events);
  expect(packed.topIds).toEqual(Int32Array.of(7, 8, 2, 3, 4));
  expect(unpackEvents(structuredClone(packed))).toEqual(events);
});
