import { expect, test } from "vitest";
import { PrefixAffinity } from "../../../../src/engine/onnx/threads/prefix-affinity.ts";

const prompt = (length: number, change = -1) => Int32Array.from({ length }, (_, t) => (t === change ? 999 : t % 300));

test("routes a prompt to the thread that computed its longest known prefix, per policy", () => {
  const homes = new PrefixAffinity<string>();
  homes.record("a", prompt(200), "one");
  homes.record("a", prompt(300, 130), "two");
  expect(homes.find("a", prompt(200))).toBe("one");
  expect(homes.find("a", prompt(400))).toBe("one");
  expect(homes.find("a", prompt(400, 130))).toBe("two");
  // What both begin with was computed by the second one last.
  expect(homes.find("a", prompt(150, 140))).toBe("two");
  expect(homes.find("b", prompt(200))).toBeNull();
  expect(homes.find("a", prompt(63))).toBeNull();
  expect(homes.find("a", prompt(200, 3))).toBeNull();
});

test("forgets the least recently used prompt", () => {
  const homes = new PrefixAffinity<number>();
  homes.record("a", prompt(64), 0);
  for (let policy = 0; policy < 8191; policy++) homes.record(`p${policy}`, prompt(64), 1);
  expect(homes.find("a", prompt(64))).toBe(0);
  homes.record("one more", prompt(64), 1);
  expect(homes.find("a", prompt(64))).toBeNull();
});
