import { join } from "node:path";
import { expect, test } from "vitest";
import { createModel, finishedEvents, startRlJob, startTestService, temporaryDirectory } from "../service/support.ts";
import { onSqlite } from "../support/postgres.ts";
import { runHere } from "./run-here.ts";

test("backup copies the directory of a running service, restore recreates it, and verify finds no damage", async () => {
  onSqlite();
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
