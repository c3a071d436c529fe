/** Failures of a run directory, which leave no open files and no lock. */
import { appendFile, mkdir, readdir, readlink, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { TrajectoryGroup } from "../../src/index.ts";
import { trajectoryFile } from "../../src/run/files.ts";
import { RunDirectory, type RunConfig } from "../../src/run/run-directory.ts";
import { group, temporaryDirectory } from "../service/support.ts";
import { canMount, smallDisk } from "../support/small-disk.ts";
import { environment, setUp, start } from "../train/support.ts";

const CONFIG: RunConfig = { version: 1, kind: "rl", fixed: {}, free: {} };

/** Returns the open files of this process below a directory. */
async function openFiles(path: string): Promise<string[]> {
  const links = (await readdir("/proc/self/fd")).map((fd) => readlink(join("/proc/self/fd", fd)).catch(() => ""));
  return (await Promise.all(links)).filter((each) => each.startsWith(path));
}

test.skipIf(process.platform !== "linux").each([
  ["events.jsonl", "no event\n"],
  ["metrics.jsonl", "no row\n"],
  ["checkpoints.jsonl", null],
])("leaves no file open if %s cannot be read", async (name, contents) => {
  const path = await temporaryDirectory();
  if (contents === null) await mkdir(join(path, name));
  else await writeFile(join(path, name), contents);
  await expect(RunDirectory.open(path, CONFIG)).rejects.toThrow();
  expect(await openFiles(path)).toEqual([]);
  await rm(join(path, name), { recursive: true });
  await (await RunDirectory.open(path, CONFIG)).close();
  expect(await openFiles(path)).toEqual([]);
});

test("adds a group after its file could not be opened, and releases the lock of a run with such a file", async () => {
  const path = await temporaryDirectory();
  const [file, other] = [join(path, trajectoryFile("train", 0)), join(path, trajectoryFile("train", 1))];
  const added = TrajectoryGroup.fromJSON({ ...group({ reward: 1, choices: [] }), metadata: { scenario_index: 0 } });
  const directory = await RunDirectory.open(path, CONFIG);
  for (const each of [file, other]) await mkdir(each, { recursive: true });
  await expect(directory.addGroup("train", 0, added)).rejects.toMatchObject({ code: "EISDIR" });
  await expect(directory.addGroup("train", 1, added)).rejects.toMatchObject({ code: "EISDIR" });
  await rm(file, { recursive: true });
  await directory.addGroup("train", 0, added);
  expect(await directory.groups("train", 0)).toHaveLength(1);
  await directory.close();
  await (await RunDirectory.open(path, CONFIG)).close();
});

test.skipIf(!canMount)("a run fails with its own error on a full disk, and can be resumed in the same process", async () => {
  const disk = await smallDisk(8);
  const runDir = join(disk.path, "run");
  const given = await setUp();
  const broken = {
    ...environment,
    async rollout() {
      await disk.fill();
      // The last page of the log has room for more events.
      for (;;) await appendFile(join(runDir, "events.jsonl"), " ");
    },
  };
  const tracker = { name: "failing", open: () => Promise.reject(new Error("no connection")) };
  const options = { environment: broken, concurrency: 1, report: true, trackers: [tracker] };
  await expect(start({ ...given, runDir }, options).done).rejects.toMatchObject({ code: "E_TOO_MANY_EXCEPTIONS" });
  await disk.empty();
  expect(await start({ ...given, runDir }).done).toMatchObject({ reason: "completed", steps: 3 });
});
