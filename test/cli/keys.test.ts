import { expect, test } from "vitest";
import { connect } from "../../src/index.ts";
import { UNKNOWN_ID } from "../service/support.ts";
import { runHere } from "./run-here.ts";
import { useSharedService } from "./shared-service.ts";

const shared = useSharedService();

/** Runs a command with `--json` that must succeed. */
async function json(...args: string[]): Promise<any> {
  const { code, stdout, stderr } = await runHere(...args, "--json");
  expect([code, stderr]).toEqual([0, ""]);
  return JSON.parse(stdout);
}

test("keys creates, lists, rotates and revokes keys, and prints each secret once", async () => {
  expect((await runHere("keys")).stdout).toBe("No keys yet: `whetstone keys create` makes one\n");
  const created = await runHere("keys", "create", "agents", "--entity", "search", "--scope", "sample", "read", "--expires-in-days", "1");
  expect(created.stdout).toMatch(
    /^key +agents\nid +\S+\nentity +search\nscopes +sample, read\nexpires +\d{4}-.*\nlimits +none\nsecret +wsk_[\w-]{43}\n.*shown once/u,
  );
  const id = /^id +(\S+)$/mu.exec(created.stdout)![1]!;
  const listed = await runHere("keys", "list", "--entity", "search");
  expect(listed.stdout).toMatch(/^ID +NAME +ENTITY +SCOPES +LIMITS +STATUS +EXPIRES +LAST USED\n/u);
  expect(listed.stdout).toMatch(new RegExp(`^${id} +agents +search +sample,read +none +active +\\d{4}-\\S+ \\S+ +never$`, "mu"));
  expect(listed.stdout).not.toContain("wsk_");
  const rotated = await json("keys", "rotate", id, "--grace-hours", "1");
  expect(rotated).toMatchObject({ id, entity: "search", key: expect.stringMatching(/^wsk_/u) });
  const unconfirmed = await runHere("keys", "revoke", id);
  expect([unconfirmed.code, unconfirmed.stderr]).toEqual([2, expect.stringMatching(/Revoke the key .*--yes/u)]);
  expect((await runHere("keys", "revoke", id, "--yes")).stdout).toBe(`Revoked the key agents (${id})\n`);
  expect((await json("keys", "list"))[0]).toMatchObject({ id, status: "revoked" });
  expect((await runHere("keys", "rotate", id)).stderr).toContain("is revoked and cannot be rotated");
  expect((await runHere("keys", "rotate", UNKNOWN_ID)).code).toBe(1);
});

test("keys limit replaces the limits of a key or an entity, and keys usage lists requests and tokens", async () => {
  const created = await json("keys", "create", "limited", "--entity", "course-2", "--requests-per-minute", "600");
  expect(created.limits).toEqual({ requestsPerMinute: 600, tokensPerMinute: null, runningChoices: null });
  const limited = await runHere("keys", "limit", created.id, "--tokens-per-minute", "50000");
  expect(limited.stdout).toMatch(/^key +limited\nrequests per minute +no limit\ntokens per minute +50000\nrunning choices +no limit\n$/u);
  expect((await runHere("keys", "--entity", "course-2")).stdout).toContain(" 50000 tokens per minute ");
  const entity = await json("keys", "limit", "--entity", "course-2", "--queued-jobs", "2", "--stored-bytes", "1000000");
  expect(entity).toMatchObject({ id: "course-2", limits: { queuedJobs: 2, storedBytes: 1_000_000, runningChoices: null } });
  for (const args of [[], [created.id, "--entity", "course-2"], [created.id, "--queued-jobs", "1"], [created.id, "--running-choices", "0"]])
    expect((await runHere("keys", "limit", ...args)).code).toBe(2);
  expect((await runHere("keys", "usage", "--entity", "course-2")).stdout).toMatch(/^No usage yet/u);
  await using team = await connect({ baseUrl: shared.server.url, apiKey: created.key });
  const { usage } = await team.chat.completions.create({
    model: "whetstone-tiny",
    messages: [{ role: "user", content: "a" }],
    max_tokens: 2,
  });
  const [row] = await json("keys", "usage", "--entity", "course-2", "--days", "2");
  expect(row).toMatchObject({
    keyId: `key:${created.id}`,
    requests: 1,
    promptTokens: usage!.prompt_tokens,
    generatedTokens: usage!.completion_tokens,
  });
});

test("keys create makes administrators and keys of one model, and rejects other scopes", async () => {
  const { id: modelId } = await shared.service.models.create({
    project: "demo",
    name: "one",
    baseModel: "whetstone-tiny",
    entity: "search",
  });
  expect(await json("keys", "create", "ops", "--all-entities")).toMatchObject({ entity: null, scopes: ["admin"] });
  expect(await json("keys", "create", "one", "--model", "search/demo/one")).toMatchObject({ entity: "search", modelId });
  for (const args of [
    ["--scope", "write"],
    ["--all-entities", "--entity", "search"],
    ["--expires-in-days", "0"],
  ])
    expect((await runHere("keys", "create", "a", ...args)).code).toBe(2);
});

test("the library creates models of the key's entity, and reports a missing scope", async () => {
  const { key } = await shared.service.keys.create({ name: "trainer", entity: "course" });
  const reader = await shared.service.keys.create({ name: "reader", entity: "course", scopes: ["read"], expiresInSeconds: 60 });
  expect((await shared.service.keys.list({ entity: "course", max: 1 })).map(({ id }) => id)).toEqual([reader.id]);
  await using team = await connect({ baseUrl: shared.server.url, apiKey: key });
  expect(await team.models.create({ project: "demo", name: "theirs", baseModel: "whetstone-tiny" })).toMatchObject({ entity: "course" });
  expect((await team.models.listTrainable()).map(({ name }) => name)).toEqual(["theirs"]);
  await expect(team.keys.list()).rejects.toMatchObject({ code: "E_HTTP", status: 403, message: expect.stringContaining("scope 'admin'") });
  await shared.service.keys.revoke(reader.id);
  await using revoked = await connect({ baseUrl: shared.server.url, apiKey: reader.key }).catch(() => null);
  if (revoked !== null) await expect(revoked.models.list()).rejects.toMatchObject({ status: 401 });
});
