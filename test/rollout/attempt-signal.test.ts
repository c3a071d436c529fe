import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { AttemptSignal } from "../../src/library/rollout/attempt-signal.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("an attempt aborts after its timeout of active time; pauses do not count", () => {
  const attempt = new AttemptSignal(100, "rollout 0 of group 0");
  vi.advanceTimersByTime(60);
  attempt.halt();
  attempt.halt();
  vi.advanceTimersByTime(1000);
  attempt.go();
  attempt.go();
  vi.advanceTimersByTime(39);
  expect(attempt.signal.aborted).toBe(false);
  vi.advanceTimersByTime(1);
  expect(attempt.signal.reason).toMatchObject({ name: "TimeoutError", message: "rollout 0 of group 0 took longer than 100 ms" });
});

test("a pause that ends after the attempt starts no timer", () => {
  const attempt = new AttemptSignal(100, "rollout");
  attempt.halt();
  attempt.dispose();
  attempt.go();
  expect(vi.getTimerCount()).toBe(0);
});
