import { expect, test, vi } from "vitest";
import { abortable, linkAbort, onceAborted } from "../../src/base/util/abort.ts";
import { delay } from "../../src/base/util/delay.ts";

test("calls the listener when the signal aborts, at once if it already has, and never after its removal", () => {
  const controller = new AbortController();
  const [kept, removed, late] = [vi.fn<() => void>(), vi.fn<() => void>(), vi.fn<() => void>()];
  onceAborted(controller.signal, kept);
  onceAborted(controller.signal, removed)();
  onceAborted(undefined, removed)();
  controller.abort();
  onceAborted(controller.signal, late)();
  expect([kept, removed, late].map(({ mock }) => mock.calls.length)).toEqual([1, 0, 1]);
});

test("64 operations with one signal cause no warning of the process", async () => {
  const warnings: string[] = [];
  const onWarning = ({ name }: Error) => void warnings.push(name);
  process.on("warning", onWarning);
  const operations = [
    (signal: AbortSignal) => delay(1, { signal }),
    (signal: AbortSignal) => abortable(delay(1), signal),
    (signal: AbortSignal) => {
      const link = linkAbort(signal);
      return delay(1).then(() => link.dispose());
    },
  ];
  for (const operation of operations) {
    const { signal } = new AbortController();
    await Promise.all(Array.from({ length: 64 }, () => operation(signal)));
  }
  process.off("warning", onWarning);
  expect(warnings).toEqual([]);
});
