/** `GET /ready`: the state of the parts, and who sees it. */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { startTestService, temporaryDirectory } from "../support.ts";

const OK = { status: "ok", message: null };

it("answers 200 without a key and without details, and with the key with the state of each part", async () => {
  const { call } = await startTestService();
  const stranger = await call("GET", "/ready", undefined, { key: null });
  expect([stranger.status, stranger.body]).toEqual([200, { status: "ready" }]);
  const wrong = await call("GET", "/ready", undefined, { key: "not-the-key-of-this-service" });
  expect([wrong.status, wrong.body]).toEqual([200, { status: "ready" }]);
  const { body } = await call("GET", "/ready");
  expect(body).toEqual({ status: "ready", parts: { engine: OK, database: OK, storage: OK, disk: OK } });
});

it("answers 503 if no sampler runs or the directory of checkpoints is gone; low disk space is no reason", async () => {
  const dataDir = await temporaryDirectory();
  const { call, engine } = await startTestService({ dataDir, limits: { minFreeBytes: 2 ** 60 } });
  const low = await call("GET", "/ready");
  expect([low.status, low.body.parts.disk.status]).toEqual([200, "degraded"]);
  engine.workers = () => [{ name: "sampler-0", role: "sampler", state: "restarting", restarts: 1, restartsInMs: 10 }];
  const down = await call("GET", "/ready");
  expect([down.status, down.body.status, down.body.parts.engine]).toEqual([
    503,
    "unavailable",
    { status: "unavailable", message: "Restarting: sampler-0" },
  ]);
  expect(down.headers.get("retry-after")).toBe("1");
  engine.workers = () => [];
  await rm(join(dataDir, "checkpoints"), { recursive: true });
  const gone = await call("GET", "/ready");
  expect([gone.status, gone.body.parts.storage.status]).toEqual([503, "unavailable"]);
});
