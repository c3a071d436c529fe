import { describe, expect, test } from "vitest";
import { AdamKernel } from "../../../../src/engine/onnx/train/adam-kernel.ts";

const scalars = {
  clip: 0.7,
  beta1: 0.9,
  oneMinusBeta1: 0.1,
  beta2: 0.99,
  oneMinusBeta2: 0.01,
  shrink: 1e-3,
  scaledRate: 1e-2,
  correction: 0.3,
  epsilon: 1e-8,
};
const LENGTH = 5003;

/** Values that repeat nowhere near a span's length. */
function vectors() {
  const fill = (f: (i: number) => number) => Float32Array.from({ length: LENGTH }, (_, i) => f(i));
  return {
    p: fill((i) => Math.sin(i)),
    m: fill((i) => Math.cos(i * 1.7) / 100),
    v: fill((i) => (1 + Math.sin(i * 0.3)) / 1000),
    g: fill((i) => (i % 97 === 0 ? 0 : Math.sin(i * 2.3) * 10 ** -(i % 6))),
  };
}

describe("one AdamW step over a span", () => {
  test("equals the formula in float32 bit for bit, and changes nothing outside the span", () => {
    const before = vectors();
    const after = vectors();
    const [start, end] = [3, 4998];
    new AdamKernel().update(after, start, end, scalars);
    const f = Math.fround;
    const s = Object.fromEntries(Object.entries(scalars).map(([name, value]) => [name, f(value)])) as typeof scalars;
    for (let i = 0; i < LENGTH; i++) {
      const [p, m, v] = [before.p[i]!, before.m[i]!, before.v[i]!];
      const isInside = i >= start && i < end;
      const g = f(before.g[i]! * s.clip);
      const m1 = f(f(m * s.beta1) + f(g * s.oneMinusBeta1));
      const v1 = f(f(v * s.beta2) + f(f(g * g) * s.oneMinusBeta2));
      const step = f(m1 / f(f(f(Math.sqrt(v1)) / s.correction) + s.epsilon));
      const p1 = f(f(p - f(p * s.shrink)) - f(step * s.scaledRate));
      expect([after.p[i], after.m[i], after.v[i]], `element ${i}`).toEqual(isInside ? [p1, m1, v1] : [p, m, v]);
    }
    expect(after.g).toEqual(before.g);
  });

  test("does not depend on the boundaries of spans", () => {
    const [whole, parts] = [vectors(), vectors()];
    const kernel = new AdamKernel();
    kernel.update(whole, 0, LENGTH, scalars);
    for (let at = 0; at < LENGTH; at += 700) kernel.update(parts, at, Math.min(at + 700, LENGTH), scalars);
    expect(parts).toEqual(whole);
  });
});
