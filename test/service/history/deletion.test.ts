import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../../src/index.ts";
import { openTestStore, onSqlite } from "../../support/postgres.ts";
import { verifyDataDirectory } from "../../../src/service/stored-files/verify.ts";
import { deferred } from "../../../src/base/util/deferred.ts";
import {
  ARTIFACTS,
  chatLines,
  createModel,
  finishedEvents,
  RL_JOBS,
  restartable,
  rlBody,
  SFT_JOBS,
  startRlJob,
  startTestService,
  UNKNOWN_ID,
  uploadArtifact,
  type TestService,
} from "../support.ts";

async function blobs(service: TestService): Promise<string[]> {
  const entries = await readdir(join(service.service.dataDir, "artifacts", "blobs"), { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => entry.name);
}

async function clientOf({ service }: TestService) {
  const client = await connect({ baseUrl: service.url, apiKey: service.apiKey });
  onTestFinished(() => client.close());
  return client;
}

/** Opens a version, puts one file into it and commits it. */
async function upload(service: TestService, contents: string, key?: string): Promise<{ id: string; url: string }> {
  const init = key === undefined ? {} : { headers: { "idempotency-key": key } };
  const { id } = await service.ok("POST", ARTIFACTS, { project: "demo", name: "data" }, init);
  await service.ok("PUT", `${ARTIFACTS}/${id}/files/train.jsonl`, contents);
  return service.ok("POST", `${ARTIFACTS}/${id}/commit`);
}

test("deletes an artifact version with the contents that no other has, and never gives its number again", async () => {
  const service = await startTestService();
  const shared = await upload(service, "the same");
  const again = await upload(service, "the same");
  const own = await upload(service, "another");
  expect(await blobs(service)).toHaveLength(2);
  expect(await service.ok("DELETE", `${ARTIFACTS}/${own.id}`)).toEqual({ artifact_id: own.id, deleted_files: 1 });
  await (await clientOf(service)).artifacts.delete(shared.id);
  expect(await blobs(service)).toHaveLength(1);
  expect(await service.ok("GET", `${ARTIFACTS}/${again.id}/files/train.jsonl`)).toBe("the same");
  for (const method of ["GET", "DELETE"]) expect(await service.call(method, `${ARTIFACTS}/${own.id}`)).toMatchObject({ status: 404 });
  expect((await service.call("PUT", `${ARTIFACTS}/${own.id}/files/x`, "x")).status).toBe(404);
  expect((await upload(service, "new")).url).toBe("artifact:///local/demo/data:v3");
  expect(await blobs(service)).toHaveLength(2);
});

test("the same upload under the same key is a new version once the first was deleted", async () => {
  const service = await startTestService();
  const first = await upload(service, "text", "one-key");
  await service.ok("DELETE", `${ARTIFACTS}/${first.id}`);
  const second = await upload(service, "text", "one-key");
  expect([first.url, second.url]).toEqual(["artifact:///local/demo/data:v0", "artifact:///local/demo/data:v1"]);
});

test("an artifact that an unfinished job reads is not deleted, for training or for validation; afterwards it is", async () => {
  const gate = deferred<void>();
  const service = await startTestService({ engine: { before: ({ verb }) => (verb === "optimStep" ? gate.promise : undefined) } });
  const { id: modelId } = await createModel(service);
  const [train, validation] = [await upload(service, chatLines(2)), await upload(service, chatLines(3))];
  const { id } = await service.ok("POST", SFT_JOBS, {
    model_id: modelId,
    training_data_url: train.url,
    experimental_config: { validation_data_url: validation.url },
  });
  for (const artifact of [train, validation]) {
    const refused = await service.call("DELETE", `${ARTIFACTS}/${artifact.id}`);
    expect(refused).toMatchObject({ status: 409, body: { error: { error_code: "E_CONFLICT", param: "artifact_id" } } });
    expect(refused.body.error.message).toContain(`'${id}'`);
  }
  gate.resolve();
  expect((await finishedEvents(service, id)).at(-1)?.type).toBe("training_ended");
  for (const artifact of [train, validation]) await service.ok("DELETE", `${ARTIFACTS}/${artifact.id}`);
  expect(await blobs(service)).toEqual([]);
  expect((await service.call("POST", SFT_JOBS, { model_id: modelId, training_data_url: train.url })).status).toBe(404);
});

test("deletes a finished job with its events and token report; its checkpoint stays", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const body = { ...rlBody(modelId), experimental_config: { token_report: true } };
  const { id } = await service.ok("POST", RL_JOBS, body);
  const events = await finishedEvents(service, id);
  expect(await service.ok("DELETE", `${RL_JOBS}/${id}`)).toEqual({
    training_job_id: id,
    deleted_events: events.length,
    deleted_tokens: true,
  });
  for (const path of ["", "/events", "/tokens"]) expect((await service.call("GET", `${RL_JOBS}/${id}${path}`)).status).toBe(404);
  expect((await service.call("DELETE", `${RL_JOBS}/${id}`)).status).toBe(404);
  expect((await service.call("DELETE", `${RL_JOBS}/${UNKNOWN_ID}`)).status).toBe(404);
  expect(await readdir(join(service.service.dataDir, "tokens"))).toEqual([]);
  expect((await service.ok("GET", `/v1/preview/models/${modelId}/checkpoints/1`)).lineage.job_id).toBe(id);
  // The next job trains on.
  expect((await finishedEvents(service, await startRlJob(service, modelId))).at(-1)).toMatchObject({ data: { step: 2 } });
});

test("a job that is not over is refused with the advice to cancel it", async () => {
  const gate = deferred<void>();
  const service = await startTestService({ engine: { before: ({ verb }) => (verb === "optimStep" ? gate.promise : undefined) } });
  const { id: modelId } = await createModel(service);
  const jobs = [await startRlJob(service, modelId), await startRlJob(service, modelId)];
  for (const path of [...jobs, `${jobs[0]}/tokens`]) {
    const refused = await service.call("DELETE", `${RL_JOBS}/${path}`);
    expect(refused).toMatchObject({
      status: 409,
      body: { error: { error_code: "E_CONFLICT", message: expect.stringContaining("/cancel") } },
    });
  }
  await service.ok("POST", `${RL_JOBS}/${jobs[1]}/cancel`);
  await (await clientOf(service)).trainingJobs.delete(jobs[1]!);
  gate.resolve();
  await finishedEvents(service, jobs[0]!);
});

test("deletes a token report alone, and the directory stays whole", async () => {
  onSqlite();
  const { dataDir, start } = await restartable();
  const service = await start();
  const { id: modelId } = await createModel(service);
  const { id } = await service.ok("POST", RL_JOBS, { ...rlBody(modelId), experimental_config: { token_report: true } });
  await finishedEvents(service, id);
  await (await clientOf(service)).trainingJobs.deleteTokens(id);
  expect((await service.call("GET", `${RL_JOBS}/${id}/tokens`)).status).toBe(404);
  expect((await service.call("DELETE", `${RL_JOBS}/${id}/tokens`)).status).toBe(404);
  expect((await service.ok("GET", `${RL_JOBS}/${id}`)).status).toBe("succeeded");
  await service.service.close();
  expect(await verifyDataDirectory(dataDir)).toMatchObject({ missing: [], damaged: [] });
});

test("a job with thousands of events is deleted in pieces, all of it", async () => {
  const { dataDir, start } = await restartable();
  const service = await start();
  const { id: modelId } = await createModel(service);
  const id = await startRlJob(service, modelId);
  const own = (await finishedEvents(service, id)).length;
  const store = await openTestStore(dataDir);
  const rows = Array.from({ length: 1000 }, (_, index) => ({
    id: `00000000-0000-4000-8000-${String(index).padStart(12, "0")}`,
    ...{ job_id: id, seq: own + 1 + index, event_key: `extra:${index}`, type: "gradient_step" as const, data: "{}", created_at: "2026" },
  }));
  await store.insertInto("job_events").values(rows).execute();
  await store.destroy();
  expect((await service.ok("DELETE", `${RL_JOBS}/${id}`)).deleted_events).toBe(own + 1000);
  expect((await service.call("GET", `${RL_JOBS}/${id}`)).status).toBe(404);
});

test("old jobs and artifacts are deleted at the start where their age is limited; young ones and those in use stay", async () => {
  const { start, dataDir, bases } = await restartable();
  const first = await start();
  const { id: modelId } = await createModel(first);
  const [old, young] = [await startRlJob(first, modelId), await startRlJob(first, modelId)];
  await finishedEvents(first, young);
  const artifact = await first.ok("POST", ARTIFACTS, { project: "demo", name: "old" });
  const kept = await uploadArtifact(first, { "train.jsonl": chatLines(2) }, "young");
  await first.service.close();
  const store = await openTestStore(dataDir);
  const lastYear = new Date(Date.now() - 365 * 86_400_000).toISOString();
  await store.updateTable("jobs").set({ training_end: lastYear }).where("id", "=", old).execute();
  await store.updateTable("artifacts").set({ created_at: lastYear }).where("id", "=", artifact.id).execute();
  await store.destroy();

  const month = 30 * 86_400_000;
  const second = await startTestService({ dataDir, engine: { bases }, limits: { maxJobAgeMs: month, maxArtifactAgeMs: month } });
  await expect.poll(async () => (await second.call("GET", `${RL_JOBS}/${old}`)).status).toBe(404);
  await expect.poll(async () => (await second.call("GET", `${ARTIFACTS}/${artifact.id}`)).status).toBe(404);
  expect((await second.ok("GET", `${RL_JOBS}/${young}`)).status).toBe("succeeded");
  const { id } = await second.ok("POST", SFT_JOBS, { model_id: modelId, training_data_url: kept });
  expect((await finishedEvents(second, id)).at(-1)).toMatchObject({ data: { step: 3 } });
  expect(second.log.map(({ message }) => message)).toContain("Old jobs and artifacts were deleted");
});
