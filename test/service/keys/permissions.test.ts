/** Every route with a key of every scope, on the key's own resources, on resources of another entity, and on resources that do not exist. */
import { expect, test } from "vitest";
import { read } from "../../project/files.ts";
import { RL_JOBS, startTestService, type Answer, type TestService } from "../support.ts";
import { createKey, createResources, MISSING, requestOf, type Resources } from "./resources.ts";

const CREDENTIALS = ["admin", "train", "sample", "read", "session"] as const;
type Credential = (typeof CREDENTIALS)[number];

interface Operation {
  readonly id: string;
  readonly method: string;
  readonly path: string;
}

/** Statuses of permitted operations other than 200: on jobs that are over, and of routes for administrators of all entities. */
const OTHER_STATUSES: Readonly<Record<string, number>> = {
  cancelJob: 409,
  cancelFineTuningJob: 400,
  pauseFineTuningJob: 400,
  resumeFineTuningJob: 400,
  // Only administrators of all entities read them.
  getMetrics: 403,
  listAuditRecords: 403,
  limitEntity: 403,
  listUpstreams: 403,
  drainUpstream: 403,
};

/** Returns the permissions of routes from the table of the reference page. */
function documentedPermissions(): Map<string, ReadonlySet<Credential>> {
  const rows = [...read("docs/reference/keys.md").matchAll(/^\| `((?:GET|POST|PUT|DELETE) [^`]+)` \|(.*)\|$/gmu)];
  return new Map(
    rows.map(([, route = "", cells = ""]) => {
      const marks = cells.split("|").map((cell) => cell.trim() === "✅");
      return [route, new Set(CREDENTIALS.filter((_, index) => marks[index]))];
    }),
  );
}

/** Returns the operations that need a key. */
async function operationsOf({ ok }: TestService): Promise<Operation[]> {
  const { paths } = await ok("GET", "/openapi.json", undefined, { key: null });
  const all = Object.entries(paths as Record<string, Record<string, { operationId: string; security: unknown[] }>>);
  return all.flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { security }]) => security.length > 0)
      .map(([method, { operationId: id }]) => ({ id, path, method: method.toUpperCase() })),
  );
}

/** Returns an answer without the identifiers that the request named, and without times. */
function comparable({ status, body }: Answer, of: Resources): unknown {
  let text = JSON.stringify(body).replaceAll(/"execution_time":[^,]*|,"request_id":"[^"]*"/gu, "");
  const ids = Object.values(of).filter((id) => id !== "");
  for (const id of ids.toSorted((a, b) => b.length - a.length)) text = text.replaceAll(id, "…");
  return [status, text];
}

/** Returns a body without the times at which keys were used. */
function withoutUses(body: unknown): string {
  return JSON.stringify(body).replaceAll(/"last_used_at":"[^"]*"/gu, '"last_used_at":null');
}

/** Order in which operations are called on own resources: deletions last, of parts before wholes; a commit after the files. */
function orderOf({ id, method, path }: Operation): number {
  if (id === "commitArtifactVersion") return 1;
  return method === "DELETE" && !path.endsWith("/pin") ? 1000 - path.length : 0;
}

/** Waits until no job of an entity is queued or running. */
function jobsEnd({ ok }: TestService, key: string): Promise<void> {
  const live = async () => {
    const { data } = await ok("GET", `${RL_JOBS}?limit=100`, undefined, { key });
    return (data as { status: string }[]).filter(({ status }) => ["queued", "running"].includes(status));
  };
  return expect.poll(live).toEqual([]);
}

test("each route answers each scope as documented, and resources of another entity like missing ones", { timeout: 300_000 }, async () => {
  const service = await startTestService();
  const { call } = service;
  const admins = await Promise.all(["acme", "rival"].map((entity) => createKey(service, { entity, scopes: ["admin"] })));
  const [acme, rival] = admins.map(({ key }) => key) as [string, string];
  const foreign = await createResources(service, "rival", rival);
  const foreignIds = Object.values(foreign);
  const operations = await operationsOf(service);
  const documented = documentedPermissions();
  expect([...documented.keys()].toSorted()).toEqual(operations.map(({ method, path }) => `${method} ${path}`).toSorted());
  const send = (operation: Operation, of: Resources, key: string | null, bySession = false): Promise<Answer> => {
    const { path, body, headers } = requestOf(operation, of, bySession);
    return call(operation.method, path, body, { key, headers });
  };
  const viewOfRival = async () => {
    const reads = operations.filter(({ id, method }) => method === "GET" && id !== "downloadCheckpoint");
    return Promise.all(reads.map(async (operation) => [operation.id, withoutUses((await send(operation, foreign, rival)).body)]));
  };
  const owned = await Promise.all(CREDENTIALS.map(() => createResources(service, "acme", acme)));
  const before = await viewOfRival();
  const revoked = await createKey(service, { entity: "acme", scopes: ["admin"] });
  await service.ok("DELETE", `/v1/preview/keys/${revoked.id}`);
  const outcomes: string[] = [];
  for (const credential of CREDENTIALS) {
    const own = owned[CREDENTIALS.indexOf(credential)]!;
    let hasEnded = false;
    const isSession = credential === "session";
    const { key } = isSession ? { key: own.sessionKey } : await createKey(service, { entity: "acme", scopes: [credential] });
    const labelOf = ({ method, path }: Operation) => `${credential}: ${method} ${path}`;
    const isPermitted = ({ method, path }: Operation) => documented.get(`${method} ${path}`)!.has(credential);
    const denied = operations.filter((operation) => !isPermitted(operation));
    const denials = denied.map(async (operation) => {
      const { status, body } = await send(operation, own, key, isSession);
      return [labelOf(operation), status, /scope '|key of a session/u.test(JSON.stringify(body))];
    });
    expect(await Promise.all(denials)).toEqual(denied.map((operation) => [labelOf(operation), 403, true]));
    if (credential === "admin") {
      const keyless = operations.flatMap((operation) => [null, revoked.key].map(async (none) => (await send(operation, own, none)).status));
      expect(new Set(await Promise.all(keyless))).toEqual(new Set([401]));
    }
    for (const operation of operations.filter(isPermitted).toSorted((a, b) => orderOf(a) - orderOf(b))) {
      if (orderOf(operation) > 1 && !hasEnded) await jobsEnd(service, acme);
      hasEnded = orderOf(operation) > 1;
      const label = labelOf(operation);
      const [ofForeign, ofMissing] = await Promise.all([foreign, MISSING].map((of) => send(operation, of, key, isSession)));
      if (ofForeign!.status >= 400 || operation.id === "runGrader")
        expect([label, comparable(ofForeign!, foreign)]).toEqual([label, comparable(ofMissing!, MISSING)]);
      else expect([label, ofForeign!.status]).toEqual([label, ofMissing!.status]);
      // A path that names a foreign resource never succeeds.
      if (operation.path.includes("{")) expect([label, ofForeign!.status]).toEqual([label, expect.toBeOneOf([403, 404])]);
      if (!isSession) outcomes.push(`${label} ${ofForeign!.status}`);
      const answer = await send(operation, own, key, isSession);
      const expected = OTHER_STATUSES[operation.id] ?? 200;
      expect([label, answer.status, answer.status === expected ? "" : answer.body]).toEqual([label, expected, ""]);
      for (const id of foreignIds.filter((each) => each !== "")) expect(JSON.stringify(answer.body)).not.toContain(id);
    }
  }
  // Lists, and requests that cannot name a resource. A grader's failure is part of its answer.
  const succeeded = outcomes.filter((line) => line.endsWith(" 200")).map((line) => line.split(" ").slice(1, 3).join(" "));
  expect([...new Set(succeeded)].toSorted()).toMatchInlineSnapshot(`
    [
      "GET /v1/files",
      "GET /v1/fine_tuning/jobs",
      "GET /v1/models",
      "GET /v1/preview/artifacts",
      "GET /v1/preview/base-models",
      "GET /v1/preview/entities",
      "GET /v1/preview/keys",
      "GET /v1/preview/models",
      "GET /v1/preview/rollout-plans",
      "GET /v1/preview/sessions",
      "GET /v1/preview/training-jobs",
      "GET /v1/preview/usage",
      "POST /v1/files",
      "POST /v1/fine_tuning/alpha/graders/run",
      "POST /v1/fine_tuning/alpha/graders/validate",
      "POST /v1/preview/artifacts",
      "POST /v1/preview/base-models",
      "POST /v1/preview/rollout-tasks/heartbeat",
      "POST /v1/preview/rollout-tasks/lease",
      "POST /v1/preview/rollout-tasks/release",
    ]
  `);
  expect(await viewOfRival()).toEqual(before);
});
