/** Step 0 of a model that starts from another checkpoint, while that checkpoint changes. */
import { randomUUID } from "node:crypto";
import { renameSync, rmSync } from "node:fs";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Verifier } from "../../src/service/disk/verifier.ts";
import { FolderStorage } from "../../src/service/storage/folder.ts";
import { EngineError } from "../../src/base/errors.ts";
import { StoredFiles } from "../../src/service/stored-files/stored-files.ts";
import { stderrLogger } from "../../src/service/common/logger.ts";
import { BaseModels } from "../../src/service/models/base-models.ts";
import { createTokenizers } from "../../src/service/models/tokenizers.ts";
import { BlobStore } from "../../src/service/artifacts/blob-store.ts";
import { prepareOrigin, type NewModel, type OriginContext } from "../../src/service/checkpoints/origin.ts";
import { Holds } from "../../src/base/util/leases.ts";
import { openDataDirectory } from "../../src/service/disk/data-directory.ts";
import { openTestStore, onSqlite } from "../support/postgres.ts";
import { createScriptedEngine } from "../../src/testing/index.ts";
import { temporaryDirectory } from "./support.ts";

/** A model with one trained checkpoint, and a fork of it to ask for. */
async function forkable() {
  const directory = await openDataDirectory(await temporaryDirectory());
  const store = await openTestStore(directory.root);
  onTestFinished(() => store.destroy());
  const engine = createScriptedEngine();
  const [modelId, checkpointId, created_at] = [randomUUID(), randomUUID(), new Date().toISOString()];
  const name = { entity: "local", project: "demo", name: "source" };
  await store
    .insertInto("models")
    .values({ id: modelId, ...name, base_model: "scripted", lora: null, seed: 1, next_step: 2, created_at })
    .execute();
  await store
    .insertInto("checkpoints")
    .values({
      id: checkpointId,
      model_id: modelId,
      step: 1,
      metrics: "{}",
      state_dir: join("checkpoints", modelId, "1"),
      optimizer_kind: "rl",
      created_at,
      lineage: null,
      pinned: 0,
    })
    .execute();
  const state = join(directory.checkpoints, modelId, "1");
  await mkdir(state, { recursive: true });
  const handle = await engine.createModel({ base: "scripted", seed: 1 });
  await engine.saveState(handle, state);
  const storage = new FolderStorage(directory, new Verifier(stderrLogger));
  const blobs = new BlobStore(directory, storage);
  const files = new StoredFiles({ store, directory, storage, logger: stderrLogger });
  const context: OriginContext = {
    store,
    directory,
    storage,
    engine,
    bases: new BaseModels({ engine, hub: null, tokenizers: createTokenizers(), sources: {} }),
    uses: new Holds(),
    blobs,
    files,
    logger: stderrLogger,
  };
  const fork = (keepsOptimizer: boolean): NewModel => ({
    id: randomUUID(),
    seed: 2,
    request: {
      project: "demo",
      name: "fork",
      base_model: "scripted",
      from: "local/demo/source",
      ...(keepsOptimizer ? { keep_optimizer: true } : {}),
    },
  });
  return { context, state, modelId, checkpointId, fork };
}

/** The same context, but something happens when the first file is about to be copied. */
function interrupted(context: OriginContext, happen: () => void): OriginContext {
  const useCheckpoint: OriginContext["files"]["useCheckpoint"] = (model, row, use, options) => {
    const copy: typeof use = (path) => {
      happen();
      return use(path);
    };
    return context.files.useCheckpoint(model, row, copy, options);
  };
  const useBlobs: OriginContext["files"]["useBlobs"] = (artifact, rows, use) => context.files.useBlobs(artifact, rows, use);
  return { ...context, files: { useCheckpoint, useBlobs } };
}

test("copies the moments of a fork on request", async () => {
  const { context, fork } = await forkable();
  const kept = fork(true);
  const { optimizer_kind: kind, state_dir: path } = await prepareOrigin(context, kept);
  expect(kind).toBe("rl");
  expect(path).toBe(join("checkpoints", kept.id, "0"));
  expect((await readdir(join(context.directory.root, path!))).toSorted()).toEqual([
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
  ]);
});

test("answers with a conflict if the moments are removed while they are copied", async () => {
  onSqlite();
  const { context, state, modelId, checkpointId, fork } = await forkable();
  const { store } = context;
  // An unpin and the end of a job change first the row, then the file.
  const dropped = interrupted(context, () => {
    void store.updateTable("checkpoints").set({ optimizer_kind: null }).where("id", "=", checkpointId).execute();
    rmSync(join(state, "optimizer.safetensors"));
  });
  await expect(prepareOrigin(dropped, fork(true))).rejects.toMatchObject({ code: "E_CONFLICT", param: "keep_optimizer" });
  expect(await readdir(context.directory.checkpoints)).toEqual([modelId]);
  // Models without an optimizer state are not affected.
  expect((await prepareOrigin(context, fork(false))).optimizer_kind).toBeNull();
});

test("answers not found if the checkpoint is deleted while it is copied", async () => {
  onSqlite();
  const { context, state, modelId, checkpointId, fork } = await forkable();
  const { store, directory } = context;
  const deleted = interrupted(context, () => {
    void store.deleteFrom("checkpoints").where("id", "=", checkpointId).execute();
    renameSync(state, join(directory.temporary, "aside"));
  });
  await expect(prepareOrigin(deleted, fork(false))).rejects.toMatchObject({ code: "E_NOT_FOUND", param: "from" });
  expect(await readdir(directory.checkpoints)).toEqual([modelId]);

  // Gone after the last file was copied, or before its name was read: nothing was missing for anybody to see.
  const other = await forkable();
  const late = interrupted(other.context, () => {
    void other.context.store.deleteFrom("checkpoints").where("id", "=", other.checkpointId).execute();
    rmSync(join(other.state, "state.json"));
  });
  await expect(prepareOrigin(late, other.fork(false))).rejects.toMatchObject({ code: "E_NOT_FOUND", param: "from" });
});

test("leaves no files after a failed import", async () => {
  const { context, modelId } = await forkable();
  const { store, blobs, directory } = context;
  const id = randomUUID();
  const name = { entity: "local", project: "demo", name: "adapter", version: 0 };
  await store
    .insertInto("artifacts")
    .values({ id, ...name, state: "committed", metadata: "{}", created_at: new Date().toISOString() })
    .execute();
  const config = JSON.stringify({ peft_type: "LORA", r: 2, lora_alpha: 4 });
  for (const [path, text] of [
    ["adapter_config.json", config],
    ["adapter_model.safetensors", "weights"],
  ] as const) {
    const { sha256, sizeBytes } = await blobs.write(new Blob([text]).stream(), { maxBytes: 1e6 });
    await store.insertInto("artifact_files").values({ artifact_id: id, path, size_bytes: sizeBytes, sha256 }).execute();
  }
  const { engine } = context;
  const failing: OriginContext["engine"] = {
    ...engine,
    createModel: () => engine.createModel({ base: "scripted", seed: 1 }),
    saveState: () => Promise.reject(new EngineError("the disk is full")),
  };
  const request = { project: "demo", name: "tuned", base_model: "scripted", from: "artifact:///local/demo/adapter:v0" };
  await expect(prepareOrigin({ ...context, engine: failing }, { id: randomUUID(), seed: 1, request })).rejects.toThrow("the disk is full");
  expect(await readdir(directory.checkpoints)).toEqual([modelId]);
  expect(await readdir(directory.temporary)).toEqual([]);
});
