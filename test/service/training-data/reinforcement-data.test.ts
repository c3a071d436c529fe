import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { ArgumentError, UnavailableError } from "../../../src/base/errors.ts";
import type { StoredArtifact } from "../../../src/service/store/artifacts.ts";
import { readReinforcementRows } from "../../../src/service/training-data/reinforcement-data.ts";
import { rowsOf } from "../fine-tuning/support.ts";
import { temporaryDirectory } from "../support.ts";

it.each([
  ["names the line of a row that its check rejects", new ArgumentError("too long"), { code: "E_DATA", message: /line 1: too long/u }],
  ["passes a failure of the service on", new UnavailableError("The thread died"), { code: "E_UNAVAILABLE", retryable: true }],
])("%s", async (_, error, expected) => {
  const path = join(await temporaryDirectory(), "train.jsonl");
  await writeFile(path, rowsOf(2));
  const names = { entity: "local", project: "files", name: "file-1", version: 0 };
  const artifact = { ...names, state: "committed", files: [{ path: "train.jsonl", sha256: "0", size_bytes: 1 }] };
  const reading = readReinforcementRows(artifact as unknown as StoredArtifact, {
    files: { useBlobs: (_artifact, _files, use) => use({ 0: path }) },
    param: "training_file",
    check: () => Promise.reject(error),
  });
  const { message, ...fields } = expected as { readonly message?: RegExp };
  await expect(reading).rejects.toMatchObject({ ...fields, ...(message && { message: expect.stringMatching(message) }) });
});
