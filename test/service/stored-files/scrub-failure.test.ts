/** Failures of the database in the background verification. */
import { setImmediate } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { openDataDirectory } from "../../../src/service/disk/data-directory.ts";
import { openStore } from "../../../src/service/store/sqlite.ts";
import { keepScrubbing } from "../../../src/service/stored-files/scrub.ts";
import { temporaryDirectory } from "../support.ts";

// Ends every pause at once, also the one until the next day.
vi.mock("node:timers/promises", async (original) => ({
  ...(await original<object>()),
  setTimeout: (_ms: number, _value: undefined, { signal }: { readonly signal: AbortSignal }) => setImmediate(undefined, { signal }),
}));

test("continues with the next round if the database fails in a round", async () => {
  const directory = await openDataDirectory(await temporaryDirectory());
  const store = await openStore(directory.database);
  onTestFinished(() => store.destroy());
  const warn = vi.fn<(message: string, fields?: object) => void>();
  const reads = vi.spyOn(store, "selectFrom").mockImplementationOnce(() => {
    throw new Error("the connection is lost");
  });
  const stop = keepScrubbing({
    store,
    directory,
    storage: { remote: null },
    files: { recheck: () => Promise.resolve() },
    limits: { scrubBytesPerSecond: Infinity },
    logger: { info: () => {}, warn, error: () => {} },
  });
  onTestFinished(stop);
  await expect.poll(() => reads.mock.calls.length).toBeGreaterThan(1);
  expect(warn.mock.calls).toEqual([
    ["Stored files could not be verified; the next round is in a day", { error: "the connection is lost" }],
  ]);
});
