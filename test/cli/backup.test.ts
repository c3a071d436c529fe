import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { createModel, finishedEvents, startRlJob, startTestService, temporaryDirectory } from "../service/support.ts";
import { runHere } from "./run-here.ts";

test("backup copies the directory of a running service, restore recreates it, and verify finds no damage", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  await finishedEvents(service, await startRlJob(service, id));
  const parent = await temporaryDirectory();
  const [backup, restored] = [join(parent, "backup"), join(parent, "restored")];
  const made = await runHere("backup", backup, "--data-dir", service.service.dataDir);
  // Weights, optimizer state and description of the one step, the database and the key.
  expect([made.code, made.stdout]).toEqual([0, expect.stringMatching(/^Backup: .*backup \(5 files, [\d.]+ kB\)\n$/u)]);
  const back = await runHere("restore", backup, "--data-dir", restored);
  expect([back.code, back.stdout]).toEqual([0, expect.stringMatching(/^Data directory: .*restored \(5 files, [\d.]+ kB\)\n$/u)]);
  expect((await runHere("verify", "--data-dir", restored)).stdout).toContain(": intact; 3 files");
  const again = await runHere("restore", backup, "--data-dir", restored);
  expect([again.code, again.stderr]).toEqual([1, expect.stringMatching(/to be empty or not to exist.*\(E_CONFIG\)/u)]);
  const missing = await runHere("restore");
  expect(missing.code).toBe(2);
});

test.each([["backup", "copy"], ["restore", "copy"], ["verify"]])(
  "%s rejects a service on Postgres, and says what to use",
  async (...args) => {
    vi.stubEnv("WHETSTONE_DATABASE", "postgres://root:secret@127.0.0.1/none");
    onTestFinished(() => void vi.unstubAllEnvs());
    const dataDir = join(await temporaryDirectory(), "data");
    const rejected = await runHere(...args, "--data-dir", dataDir);
    expect([rejected.code, rejected.stdout]).toEqual([1, ""]);
    expect(rejected.stderr).toMatch(
      /^error: `whetstone (backup|restore|verify)` works on .*SQLite.*pg_dump.*bucket.*unset WHETSTONE_DATABASE \(E_CONFIG\)\n$/u,
    );
    expect(rejected.stderr).not.toContain("secret");
  },
);
