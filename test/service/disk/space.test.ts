import { expect, test } from "vitest";
import { DiskSpace } from "../../../src/service/disk/space.ts";

const MIB = 1024 * 1024;

/** A guard over a free space that the test sets, and a reserve that is only counted. */
function guarded(freeBytes: number | null, { minFreeBytes = 64 * MIB, isReserveThere = true } = {}) {
  const state = { freeBytes, fills: 0, releases: 0 };
  const log: string[] = [];
  const write = (message: string) => void log.push(message);
  const space = new DiskSpace({
    root: "/nowhere",
    minFreeBytes,
    reserve: {
      fill: async () => void state.fills++,
      release: async () => state.releases++ === 0 && isReserveThere,
    },
    logger: { info: write, warn: write, error: write },
    probe: async () => state.freeBytes,
  });
  return { space, state, log };
}

const diskFull = () => Object.assign(new Error("disk full"), { code: "ENOSPC" });

test("refuses new work when less than the minimum is or would be free, and says what to do", async () => {
  const { space, state } = guarded(100 * MIB);
  await space.requireSpace();
  await space.requireSpace(36 * MIB);
  await expect(space.requireSpace(37 * MIB)).rejects.toMatchObject({
    code: "E_NO_SPACE",
    message: expect.stringContaining("brings up to"),
  });
  state.freeBytes = 64 * MIB - 1;
  await expect(space.requireSpace()).rejects.toMatchObject({ code: "E_NO_SPACE", message: expect.stringContaining("Delete checkpoints") });
});

test("allows everything where the free space is unknown, and where the guard is off", async () => {
  await guarded(null).space.requireSpace(1e15);
  await guarded(0, { minFreeBytes: 0 }).space.requireSpace();
});

test("logs low space once, and once that there is enough again", async () => {
  const { space, state, log } = guarded(1);
  for (let look = 0; look < 3; look++) expect(await space.isLow()).toBe(true);
  state.freeBytes = 69 * MIB;
  for (let look = 0; look < 3; look++) expect(await space.isLow()).toBe(false);
  expect(log).toEqual([expect.stringContaining("Disk space is low"), expect.stringContaining("enough disk space again")]);
});

test("gives up the reserve for work that frees space, once, and fills it again when there is room", async () => {
  const { space, state } = guarded(0);
  let attempts = 0;
  const work = async () => {
    if (++attempts === 1) throw diskFull();
    return "deleted";
  };
  expect(await space.freeing(work)).toBe("deleted");
  expect([attempts, state.releases, state.fills]).toEqual([2, 1, 0]);
  // The reserve is gone: the error of the work itself is reported.
  await expect(space.freeing(() => Promise.reject(diskFull()))).rejects.toMatchObject({ code: "ENOSPC" });
  state.freeBytes = 68 * MIB;
  await space.isLow();
  expect(state.fills).toBe(1);
});

test("leaves the reserve alone when work fails for another reason", async () => {
  const { space, state } = guarded(0);
  await expect(space.freeing(() => Promise.reject(new Error("no such step")))).rejects.toThrow("no such step");
  expect(state.releases).toBe(0);
});

test("a wait for room ends when there is room, and when it is aborted", async () => {
  const { space, state } = guarded(0);
  const abort = new AbortController();
  const waits = [space.waitForSpace({ failures: 3, signal: abort.signal }), space.waitForSpace({ failures: 0, signal: abort.signal })];
  state.freeBytes = 200 * MIB;
  await waits[1];
  await waits[0];
  state.freeBytes = 0;
  const endless = space.waitForSpace({ failures: 0, signal: abort.signal });
  abort.abort();
  await endless;
});
