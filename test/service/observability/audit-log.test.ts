/** The audit log: which requests it records, and that no action is without a record. */
import { describe, expect, it } from "vitest";
import { connect } from "../../../src/index.ts";
import { isAudited } from "../../../src/service/audit.ts";
import { startTestService, temporaryDirectory } from "../support.ts";

const AUDIT = "/v1/preview/audit-log";
const MODEL = { project: "p", name: "m", base_model: "tiny" };

describe("the audit log", () => {
  it("records who created, downloaded and deleted what, with the outcome, newest first", async () => {
    const { call, ok, service } = await startTestService({ auditLog: true });
    const { id } = await ok("POST", "/v1/preview/models", MODEL, { headers: { "x-request-id": "r-1" } });
    await call("POST", "/v1/preview/models", MODEL);
    await call("GET", `/v1/preview/models/${id}/checkpoints/0/archive?format=state`);
    await ok("DELETE", `/v1/preview/models/${id}`);
    await ok("GET", "/v1/preview/models");
    await ok("POST", "/v1/chat/completions", { messages: [{ role: "user", content: "hi" }], max_tokens: 1 });
    await call("DELETE", `/v1/preview/models/${id}`, undefined, { key: null });
    const { data } = await ok("GET", AUDIT);
    const actor = { entity: "local", key_id: "service", request_id: expect.stringMatching(/\S+/u) };
    expect(data.map(({ id: _id, created_at: _createdAt, ...record }: { id: string; created_at: string }) => record)).toEqual([
      { ...actor, action: "deleteModel", object: id, status: 200 },
      { ...actor, action: "downloadCheckpoint", object: `${id}/checkpoints/0/archive`, status: expect.any(Number) },
      { ...actor, action: "createModel", object: null, status: 409 },
      { ...actor, action: "createModel", object: id, status: 200, request_id: "r-1" },
    ]);
    expect(JSON.stringify(data)).not.toContain(service.apiKey);
  });

  it("is listed by pages, by action and by entity, also by the client", async () => {
    const { ok, call, service } = await startTestService({ auditLog: true });
    for (const name of ["a", "b", "c"]) await ok("POST", "/v1/preview/models", { ...MODEL, name });
    await call("DELETE", "/v1/preview/models/nothing");
    const page = await ok("GET", `${AUDIT}?limit=3`);
    expect(page).toMatchObject({ has_more: true, data: [{ action: "deleteModel" }, { action: "createModel" }, { action: "createModel" }] });
    expect((await ok("GET", `${AUDIT}?limit=3&after=${page.last_id}`)).data).toHaveLength(1);
    expect((await ok("GET", `${AUDIT}?entity=other`)).data).toEqual([]);
    expect((await call("GET", `${AUDIT}?after=nothing`)).status).toBe(422);
    const client = await connect({ baseUrl: service.url, apiKey: service.apiKey });
    expect(await client.auditLog({ action: "deleteModel" })).toMatchObject([{ action: "deleteModel", object: "nothing", status: 404 }]);
    await client.close();
  });

  it("has a record of an action whose answer was never sent", async () => {
    const server = await startTestService({ auditLog: true });
    const { engine, ok, call } = server;
    let isReached = false;
    engine.describeBase = () => {
      isReached = true;
      return new Promise(() => undefined);
    };
    void call("POST", "/v1/preview/models", MODEL).catch(() => undefined);
    await expect.poll(() => isReached).toBe(true);
    expect((await ok("GET", AUDIT)).data).toMatchObject([{ action: "createModel", status: null, object: null }]);
  });

  it("is kept over restarts, and is an explained 404 without the option", async () => {
    const dataDir = await temporaryDirectory();
    const first = await startTestService({ dataDir, auditLog: true });
    await first.ok("POST", "/v1/preview/models", MODEL);
    await first.service.close({ graceMs: 0 });
    const second = await startTestService({ dataDir });
    const { status, body } = await second.call("GET", AUDIT);
    expect([status, body.error.message]).toEqual([404, expect.stringContaining("--audit-log")]);
    await second.ok("POST", "/v1/preview/models", { ...MODEL, name: "unrecorded" });
    await second.service.close({ graceMs: 0 });
    const third = await startTestService({ dataDir, auditLog: true });
    expect((await third.ok("GET", AUDIT)).data).toHaveLength(1);
  });

  it("covers every route that changes something, and every download", async () => {
    const { ok } = await startTestService();
    const document = await ok("GET", "/openapi.json", undefined, { key: null });
    const operations = Object.values(document.paths as Record<string, Record<string, { operationId: string; tags: [never] }>>).flatMap(
      (path) =>
        Object.entries(path).map(([method, { operationId: id, tags }]) => ({ id, method: method.toUpperCase() as "GET", tag: tags[0] })),
    );
    const unrecorded = operations
      .filter(({ method, tag }) => method !== ("GET" as string) && tag !== ("Chat" as string))
      .filter((each) => !isAudited(each));
    expect(unrecorded.map(({ id }) => id).toSorted()).toEqual(
      ["addSessionMetrics", "finishSession", "runGrader", "setSessionReward", "validateGrader"].toSorted(),
    );
    const downloads = operations.filter(({ method }) => method === "GET").filter(isAudited);
    expect(downloads.map(({ id }) => id).toSorted()).toEqual(["downloadCheckpoint", "getArtifactFile", "getFileContent", "getJobTokens"]);
  });
});
