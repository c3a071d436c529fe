import { createHash } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { artifactVersion } from "../../src/base/schema/index.ts";
import { ARTIFACTS, startTestService, UNKNOWN_ID } from "./support.ts";

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

test("creates, fills, commits and reads an artifact version", async () => {
  const { ok } = await startTestService();
  const opened = await ok("POST", ARTIFACTS, { project: "demo", name: "data", metadata: { from: "a test" } });
  expect(artifactVersion.parse(opened)).toMatchObject({
    entity: "local",
    version: 0,
    state: "open",
    url: "artifact:///local/demo/data:v0",
    files: [],
    metadata: { from: "a test" },
  });
  const path = `${ARTIFACTS}/${opened.id}`;
  expect(await ok("PUT", `${path}/files/sub%20dir/a.txt`, "first")).toEqual({
    path: "sub dir/a.txt",
    size_bytes: 5,
    sha256: sha256("first"),
  });
  expect(await ok("PUT", `${path}/files/b.txt`, new Blob(["sec", "ond"]).stream())).toEqual({
    path: "b.txt",
    size_bytes: 6,
    sha256: sha256("second"),
  });
  expect((await ok("PUT", `${path}/files/b.txt`, "third")).sha256).toBe(sha256("third"));
  expect((await ok("PUT", `${path}/files/empty`)).size_bytes).toBe(0);
  const committed = await ok("POST", `${path}/commit`);
  expect(committed).toMatchObject({ state: "committed", files: [{ path: "b.txt" }, { path: "empty" }, { path: "sub dir/a.txt" }] });
  expect(await ok("POST", `${path}/commit`)).toEqual(committed);
  expect(await ok("GET", path)).toEqual(committed);
  expect(await ok("GET", `${path}/files/b.txt`)).toBe("third");
  expect(await ok("GET", `${path}/files/sub%20dir/a.txt`)).toBe("first");
  expect((await ok("POST", ARTIFACTS, { project: "demo", name: "data" })).url).toBe("artifact:///local/demo/data:v1");
});

test("rejects changes to a committed version and the commit of an empty version", async () => {
  const { call, ok } = await startTestService();
  const { id } = await ok("POST", ARTIFACTS, { project: "demo", name: "data" });
  expect(await call("POST", `${ARTIFACTS}/${id}/commit`)).toMatchObject({ status: 409, body: { error: { param: "artifact_id" } } });
  await ok("PUT", `${ARTIFACTS}/${id}/files/a`, "x");
  await ok("POST", `${ARTIFACTS}/${id}/commit`);
  expect(await call("PUT", `${ARTIFACTS}/${id}/files/a`, "y")).toMatchObject({ status: 409, body: { error: { param: "artifact_id" } } });
  expect(await ok("GET", `${ARTIFACTS}/${id}/files/a`)).toBe("x");
});

test("answers 404 for unknown versions and files, listing existing files", async () => {
  const { call, ok } = await startTestService();
  for (const [method, path] of [
    ["GET", ""],
    ["PUT", "/files/a"],
    ["GET", "/files/a"],
    ["POST", "/commit"],
  ] as const) {
    expect((await call(method, `${ARTIFACTS}/${UNKNOWN_ID}${path}`)).status).toBe(404);
  }
  const { id } = await ok("POST", ARTIFACTS, { project: "demo", name: "data" });
  await ok("PUT", `${ARTIFACTS}/${id}/files/a.txt`, "x");
  const answer = await call("GET", `${ARTIFACTS}/${id}/files/b.txt`);
  expect(answer).toMatchObject({ status: 404, body: { error: { param: "path" } } });
  expect(answer.body.error.message).toContain("a.txt");
});

test("stores equal contents once, and removes an interrupted upload", async () => {
  const { ok, call, service } = await startTestService();
  const { id } = await ok("POST", ARTIFACTS, { project: "demo", name: "data" });
  await ok("PUT", `${ARTIFACTS}/${id}/files/a`, "same");
  await ok("PUT", `${ARTIFACTS}/${id}/files/b`, "same");
  const broken = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new Uint8Array(100_000)),
    pull: (controller) => controller.error(new Error("the client died")),
  });
  await expect(call("PUT", `${ARTIFACTS}/${id}/files/c`, broken)).rejects.toThrow();
  expect((await ok("GET", `${ARTIFACTS}/${id}`)).files.map((file: { path: string }) => file.path)).toEqual(["a", "b"]);
  const stored = async () =>
    (await readdir(join(service.dataDir, "artifacts", "blobs"), { recursive: true, withFileTypes: true }))
      .filter((entry) => entry.isFile())
      .map((entry) => entry.name);
  expect(await stored()).toEqual([sha256("same")]);
  await expect.poll(() => readdir(join(service.dataDir, "tmp"))).toEqual([]);
});

test("removes the contents of a replaced file unless another file has the same contents", async () => {
  const { service, ok, call } = await startTestService();
  const blobs = async () =>
    (await readdir(join(service.dataDir, "artifacts", "blobs"), { recursive: true, withFileTypes: true }))
      .filter((entry) => entry.isFile())
      .map(({ name }) => name)
      .toSorted();
  const [a, b] = [
    await ok("POST", ARTIFACTS, { project: "demo", name: "data" }),
    await ok("POST", ARTIFACTS, { project: "demo", name: "data" }),
  ];
  for (const { id } of [a, b]) await ok("PUT", `${ARTIFACTS}/${id}/files/x`, "shared");
  await ok("PUT", `${ARTIFACTS}/${a.id}/files/x`, "first");
  expect(await blobs()).toEqual([sha256("first"), sha256("shared")].toSorted());
  await ok("PUT", `${ARTIFACTS}/${b.id}/files/x`, "second");
  expect(await blobs()).toEqual([sha256("first"), sha256("second")].toSorted());
  // The same bytes again replace nothing.
  await ok("PUT", `${ARTIFACTS}/${b.id}/files/x`, "second");
  await ok("POST", `${ARTIFACTS}/${a.id}/commit`);
  expect((await call("PUT", `${ARTIFACTS}/${a.id}/files/x`, "late")).status).toBe(409);
  expect(await blobs()).toEqual([sha256("first"), sha256("second")].toSorted());
});

test("concurrent uploads of the same bytes do not remove each other's contents", async () => {
  const { ok, call } = await startTestService();
  const versions = await Promise.all(Array.from({ length: 8 }, () => ok("POST", ARTIFACTS, { project: "demo", name: "data" })));
  // The S3 server of the tests lists an object that is being replaced with a wrong size, which is answered with 503 on Postgres.
  const put = async (path: string, text: string): Promise<void> => {
    const { status, body } = await call("PUT", path, text);
    if (status === 503) return put(path, text);
    expect(status, JSON.stringify(body)).toBe(200);
  };
  for (let round = 0; round < 5; round++) {
    const text = `round ${round % 2}`;
    await Promise.all(versions.map(({ id }: { id: string }) => put(`${ARTIFACTS}/${id}/files/x`, text)));
    for (const { id } of versions) expect(await ok("GET", `${ARTIFACTS}/${id}/files/x`)).toBe(text);
  }
});
