import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import type { Engine } from "../../../src/engine/port.ts";
import { saveDurably } from "../../../src/service/checkpoints/save-state.ts";
import { openDataDirectory } from "../../../src/service/disk/data-directory.ts";
import { deleteOldQuarantines, Quarantine } from "../../../src/service/disk/quarantine.ts";
import { temporaryDirectory } from "../support.ts";

/** Opens a data directory with a checkpoint that no row mentions. */
async function strayCheckpoint() {
  const directory = await openDataDirectory(await temporaryDirectory());
  const path = join(directory.checkpoints, "model", "step1");
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "weights"), "the only copy");
  const logger = { info: () => {}, warn: vi.fn<(message: string, fields?: object) => void>(), error: () => {} };
  return { directory, path, logger };
}

test("logs the directory of the moved files, and deletes only old directories that are named as quarantines", async () => {
  const { directory, path, logger } = await strayCheckpoint();
  const quarantine = new Quarantine(directory, logger);
  await quarantine.add(path);
  await quarantine.add(join(directory.root, "missing"));
  quarantine.report();
  expect(logger.warn.mock.calls).toEqual([
    [expect.any(String), { quarantine: expect.any(String), count: 1, paths: [join("checkpoints", "model", "step1")] }],
  ]);
  const { quarantine: logged, paths } = logger.warn.mock.calls[0]![1] as { quarantine: string; paths: string[] };
  await expect(readdir(join(logged, paths[0]!))).resolves.toEqual(["weights"]);

  const notQuarantines = ["notes", "2026-99-99T99-99-99.999Z-00000000"];
  for (const name of notQuarantines) await mkdir(join(directory.quarantine, name));
  await mkdir(join(directory.quarantine, "2020-01-01T00-00-00.000Z-00000000"));
  await expect(deleteOldQuarantines(directory, 60_000, logger)).resolves.toBe(1);
  expect((await readdir(directory.quarantine)).toSorted()).toEqual(
    [...notQuarantines, logged.slice(directory.quarantine.length + 1)].toSorted(),
  );
});

test("a state that cannot be saved leaves a directory that no row mentions in its place", async () => {
  const { directory, path, logger } = await strayCheckpoint();
  const engine = { saveState: () => Promise.reject(new Error("the disk is full")) } as unknown as Engine;
  const storage = { keep: () => Promise.resolve(), remove: vi.fn<() => Promise<boolean>>(() => Promise.resolve(true)) };
  await expect(saveDurably({ engine, directory, storage, logger }, {} as never, path)).rejects.toThrow("the disk is full");
  expect(storage.remove).not.toHaveBeenCalled();
  await expect(readdir(join(directory.checkpoints, "model"))).resolves.toEqual(["step1"]);
});
