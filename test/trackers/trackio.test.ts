import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { trackioTracker } from "../../src/training/trackers/trackio.ts";
import { readLines, setUp, start } from "../train/support.ts";

// `LogEntry` and `Trace` of trackio 0.43; the server ignores entries with a known `log_id`.
const trace = z.strictObject({
  _type: z.literal("trackio.trace"),
  messages: z.array(z.looseObject({ role: z.string() })),
  metadata: z.record(z.string(), z.unknown()),
});
const entry = z.strictObject({
  project: z.string(),
  run: z.string(),
  run_id: z.string(),
  metrics: z.record(z.string(), z.union([z.number(), trace])),
  step: z.int(),
  config: z.record(z.string(), z.unknown()),
  log_id: z.string(),
});
const bulkLog = z.strictObject({ logs: z.array(entry), hf_token: z.null() });

/** Starts a server that checks the requests of `POST /api/bulk_log`; the first `failures` of them are stored and answered with 500. */
async function startServer(failures = 0) {
  const entries = new Map<string, z.infer<typeof entry>>();
  let requests = 0;
  const server = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      if (request.url !== "/api/bulk_log" || request.headers["x-trackio-write-token"] !== "secret/") return 403;
      const parsed = bulkLog.safeParse(JSON.parse(Buffer.concat(chunks).toString()));
      if (!parsed.success) return 422;
      for (const each of parsed.data.logs) if (!entries.has(each.log_id)) entries.set(each.log_id, each);
      return requests++ < failures ? 500 : 200;
    })().then((status) => response.writeHead(status, { "content-type": "application/json" }).end('{"data":null}'));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/?write_token=secret/`, entries };
}

it("logs every step and evaluation once with the settings, and rollouts as traces, also after a lost response", async () => {
  const server = await startServer(1);
  const given = await setUp();
  const trackers = [trackioTracker({ url: server.url, project: "demo", rollouts: 3 })];
  await start(given, { trackers, evaluation: { every: 2 } }).done;
  const entries = [...server.entries.values()];
  expect(entries.every(({ project, run, config }) => project === "demo" && run === "run" && config["kind"] === "rl")).toBe(true);
  const rows = await readLines(given.runDir, "metrics.jsonl");
  const plotted = entries.filter(({ metrics }) => !Object.keys(metrics).some((name) => name.startsWith("rollouts/")));
  expect(plotted.map(({ step, metrics }) => [step, metrics["reward/mean"] ?? metrics["eval/reward/mean"]])).toEqual(
    rows.map((row) => [row.step, row["reward/mean"] ?? row["eval/reward/mean"]]),
  );
  const traces = entries.flatMap(({ step, metrics }) => (metrics["rollouts/train"] === undefined ? [] : [step]));
  expect(traces).toEqual([0, 0, 0, 1, 1, 1, 2, 2, 2]);
});

it("warns that the token is wrong, and the run completes", async () => {
  const server = await startServer();
  const given = await setUp();
  const run = start(given, { steps: 1, trackers: [trackioTracker({ url: server.url, token: "other" })] });
  const warnings: string[] = [];
  for await (const event of run) if (event.type === "warning" && event.code === "tracker-trackio") warnings.push(event.message);
  expect(warnings[0]).toMatch(/api\/bulk_log answered 403/);
  expect(server.entries.size).toBe(0);
  await expect(run.done).resolves.toMatchObject({ reason: "completed" });
});
