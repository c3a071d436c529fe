import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import type { SampledEvent } from "../../../../src/engine/onnx/sample/request.ts";
import { Sampler } from "../../../../src/engine/onnx/sample/sampler.ts";
import { base, params } from "./harness.ts";

/** Returns the numbers of prompt tokens per run of a place with a slow start of runs, while another row decodes. */
async function piecesOf(minPiece: number): Promise<number[]> {
  const { place, weights } = onHost(1);
  const pieces: number[] = [];
  const slow: typeof place = {
    ...place,
    minPiece,
    async run(input) {
      if (input.kind !== "decode") pieces.push(input.tokens.length);
      await sleep(20);
      return place.run(input);
    },
  };
  const ended = new Map<number, () => void>();
  const onEvents = (events: readonly SampledEvent[]) => {
    for (const { request, token } of events) if (token.finish) ended.get(request)!();
  };
  const sampler = new Sampler(
    { threads: 1, prefixCacheBytes: 0 },
    onEvents,
    (_, error) => {
      throw error;
    },
    { place: slow, weights },
  );
  await sampler.loadPolicy("p", base, undefined);
  const run = (id: number, length: number, maxTokens: number) => {
    const prompt = Int32Array.from({ length }, (_, t) => 97 + ((id + t * 7) % 20));
    sampler.add(id, "p", prompt, params(id, { maxTokens }));
    return new Promise<void>((resolve) => ended.set(id, resolve));
  };
  const running = run(0, 16, 100);
  await run(1, 256, 1);
  sampler.cancel(0);
  ended.get(0)!();
  await running;
  return pieces.slice(1);
}

test("while rows decode, pieces of a prompt have at least the minimum of the place, also if the time for them is shorter", async () => {
  const pieces = await piecesOf(64);
  expect(pieces.reduce((a, b) => a + b, 0)).toBe(256);
  // The last piece has the rest.
  expect(Math.min(...pieces.slice(0, -1))).toBeGreaterThanOrEqual(64);
});
