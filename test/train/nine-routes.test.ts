import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { defineEnvironment, reward } from "../../src/library/environment/index.ts";
import { trajectory, trainRl, type Service } from "../../src/index.ts";
import { useServer } from "../client/connection.ts";
import { temporaryDirectory } from "../service/support.ts";
import type { NineRoutesServer } from "../support/nine-routes-server.ts";
import { readLines } from "./support.ts";

const open = useServer();

const environment = defineEnvironment<{ readonly id: string }>({
  name: "letters",
  scenarios: { train: (index) => ({ id: `word-${index}` }), eval: [] },
  async rollout({ id }, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: id }] });
    await t.sample(policy, { maxCompletionTokens: 4, ...sampling });
    return t;
  },
  rewards: [reward("first", ({ text }) => text.charCodeAt(0) / 100)],
});

const posts = ({ requests }: NineRoutesServer) => requests.filter(({ method, url }) => method === "POST" && url.endsWith("/training-jobs"));

async function begin(
  service: Service,
  options: { readonly steps?: number; readonly orphanWaitMs?: number; readonly runDir?: string } = {},
) {
  const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny", returnExisting: true });
  const runDir = options.runDir ?? join(await temporaryDirectory(), "run");
  return trainRl({ model, environment, steps: 2, scenariosPerStep: 2, groupSize: 16, report: false, ...options, runDir });
}

describe("a run on a service with only the nine routes", () => {
  it("plays, trains by polling checkpoints, and requests no token report", async () => {
    const { server, service } = await open();
    const run = await begin(service);
    await expect(run.done).resolves.toMatchObject({ reason: "completed", steps: 2, checkpointStep: 2 });
    for (const { body } of posts(server)) expect(JSON.stringify((body as any).experimental_config)).not.toContain("token_report");
    const rows = await readLines(run.runDir, "metrics.jsonl");
    expect(rows.map(({ checkpoint_step, loss }) => [checkpoint_step, loss])).toEqual([
      [1, 0.5],
      [2, 0.5],
    ]);
  });

  it("finds a job with a lost response by its checkpoint, and does not send it again", async () => {
    const { server, service } = await open({ jobPolls: 0, maxRetries: 0 });
    server.intercept = (request, response) => {
      if (request.method !== "POST" || !request.url.endsWith("/training-jobs") || posts(server).length > 1) return false;
      // Accepted, and the answer lost on its way.
      response.end = (() => {
        response.socket?.resetAndDestroy();
        return response;
      }) as typeof response.end;
      return false;
    };
    const run = await begin(service);
    await expect(run.done).resolves.toMatchObject({ steps: 2, checkpointStep: 2 });
    expect(posts(server)).toHaveLength(2);
    const events = await readLines(run.runDir, "events.jsonl");
    expect(events.filter(({ type }) => type === "job-start").map(({ step }) => step)).toEqual([1]);
  });

  it("sends a job again if an unclear request created no checkpoint", async () => {
    const { server, service } = await open({ jobPolls: 0, maxRetries: 0 });
    server.intercept = (request, response) => {
      if (request.method !== "POST" || !request.url.endsWith("/training-jobs") || posts(server).length > 1) return false;
      response.socket?.resetAndDestroy();
      return true;
    };
    const run = await begin(service, { orphanWaitMs: 20 });
    await expect(run.done).resolves.toMatchObject({ steps: 2, checkpointStep: 2 });
    expect(posts(server)).toHaveLength(3);
  });

  it("resumes from the job intent of an earlier process", async () => {
    const { server, service } = await open({ jobPolls: 0 });
    const first = await begin(service, { steps: 1 });
    await first.done;
    // As if the process had ended between the request and the record of its answer.
    const events = await readLines(first.runDir, "events.jsonl");
    const until = events.findIndex(({ type }) => type === "job-intent");
    const text = events.slice(0, until + 1).map((event) => `${JSON.stringify(event)}\n`);
    await writeFile(join(first.runDir, "events.jsonl"), text.join(""));
    await rm(join(first.runDir, "metrics.jsonl"));
    const second = await begin(service, { steps: 1, runDir: first.runDir });
    await expect(second.done).resolves.toMatchObject({ steps: 1, checkpointStep: 1 });
    expect(posts(server)).toHaveLength(1);
  });
});
