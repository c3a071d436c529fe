/** The event stream of the dashboard on runs that grow, written by the writers of training runs. */
import { appendFile, mkdtemp, realpath, rm, truncate, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EventSourceParserStream } from "eventsource-parser/stream";
import { expect, onTestFinished, test, vi } from "vitest";
import { deferred } from "../../src/base/util/deferred.ts";
import { delay } from "../../src/base/util/delay.ts";
import { createDashboard } from "../../src/lab/dashboard/index.ts";
import { RunReader } from "../../src/lab/dashboard/run-reader.ts";
import { Runs } from "../../src/lab/dashboard/runs.ts";
import { RunDirectory, type RunConfig } from "../../src/run/run-directory.ts";

/** Milliseconds to wait for a message. */
const DEADLINE_MS = 60_000;

const CONFIG: RunConfig = { version: 1, kind: "rl", fixed: { model: "local/demo/a", environment: "sums" }, free: {} };

interface Message {
  readonly event: string;
  readonly id: string | undefined;
  readonly data: any;
}

async function setUp() {
  const root = await realpath(await mkdtemp(join(tmpdir(), "whetstone-stream-")));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const dashboard = createDashboard({ runs: [root], dataDir: root, pollMs: 20 });
  onTestFinished(() => dashboard.close());
  const startRun = async (name: string) => {
    const run = await RunDirectory.open(join(root, name), CONFIG);
    onTestFinished(() => run.close().catch(() => undefined));
    await run.record({ type: "run-start", kind: "rl", modelId: "m", checkpointStep: 0, steps: 9 });
    return run;
  };
  /**
   * Opens a stream. `next` skips to the next message with a name, and with data that match: a poll may see an event before the metrics that
   * the run derives from it.
   */
  const open = async (query = "", headers: Record<string, string> = {}) => {
    const leave = new AbortController();
    const answer = await dashboard.app.request(`/ui/api/events${query}`, { headers, signal: leave.signal });
    expect(answer.headers.get("content-type")).toContain("text/event-stream");
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream()).getReader();
    onTestFinished(() => reader.cancel().catch(() => undefined));
    const read = async (): Promise<Message | null> => {
      const { done, value } = await Promise.race([
        reader.read(),
        new Promise<never>((_, reject) => setTimeout(() => reject(new Error("No message before the deadline")), DEADLINE_MS).unref()),
      ]);
      return done ? null : { event: value.event ?? "", id: value.id, data: JSON.parse(value.data) };
    };
    const next = async (event: string, matches: (data: any) => boolean = () => true): Promise<Message> => {
      for (;;) {
        const message = await read();
        if (message === null) throw new Error(`The stream ended before a message ${event}`);
        if (message.event === event && matches(message.data)) return message;
      }
    };
    return { next, read };
  };
  const json = async (path: string): Promise<any> => (await dashboard.app.request(path)).json();
  return { root, dashboard, startRun, open, json };
}

const stepEnd = (step: number, reward: number) =>
  ({ type: "step-end", step, policyStep: step, checkpointStep: step + 1, metrics: { "reward/mean": reward, loss: -reward } }) as const;

test("starts with all runs, then reports new, changed, ended and removed ones", async () => {
  const { root, startRun, open } = await setUp();
  const first = await startRun("first");
  const stream = await open();
  const [summary] = (await stream.next("runs")).data;
  expect(summary).toMatchObject({ name: "first", title: "sums", state: "running", steps: 0, plannedSteps: 9, reward: null });
  await first.record(stepEnd(0, 0.5));
  const step = await stream.next("run", ({ steps }) => steps === 1);
  expect(step.data).toMatchObject({ id: summary.id, reward: 0.5, rewards: [0.5] });
  const second = await startRun("group/second");
  expect((await stream.next("run", ({ name }) => name === "group/second")).data.state).toBe("running");
  await second.close();
  expect((await stream.next("run", ({ state }) => state !== "running")).data).toMatchObject({ name: "group/second", state: "interrupted" });
  await first.record({ type: "run-fail", code: "E_DATA", message: "no data" });
  await first.close();
  const failed = await stream.next("run", ({ name, state }) => name === "first" && state !== "running");
  expect(failed.data).toMatchObject({ state: "failed", ended: "failed: no data" });
  await rm(join(root, "first"), { recursive: true });
  expect((await stream.next("run-remove")).data).toEqual({ id: summary.id });
});

test("sends rows and events of a followed run from the position of its metrics, and resumes at the last id", async () => {
  const { startRun, open, json } = await setUp();
  const run = await startRun("a");
  await run.record(stepEnd(0, 0.25));
  const [{ id }] = await json("/ui/api/runs");
  const [{ position, metrics }] = await json(`/ui/api/metrics?run=${id}&name=reward/mean`);
  expect(metrics.train).toEqual({ steps: [0], columns: { "reward/mean": [0.25] } });
  await run.record(stepEnd(1, 0.5));
  const stream = await open(`?run=${id}@${position}`);
  const rows = await stream.next("rows");
  expect(rows.data).toEqual({
    run: id,
    metrics: {
      train: { steps: [1], columns: { loss: [-0.5], "reward/mean": [0.5], checkpoint_step: [2], policy_step: [1] } },
      eval: { steps: [], columns: {} },
    },
  });
  // A client that leaves between the two messages gets both again.
  expect(rows.id).toBeUndefined();
  const event = await stream.next("event");
  expect(event.data).toMatchObject({ run: id, event: { seq: 2, type: "step-end", step: 1, policy_step: 1 } });
  await run.record(stepEnd(2, 0.75));
  expect((await stream.next("rows")).data.metrics.train.steps).toEqual([2]);

  const resumed = await open(`?run=${id}@${position}`, { "last-event-id": event.id ?? "" });
  expect((await resumed.next("rows")).data.metrics.train.steps).toEqual([2]);
  expect((await resumed.next("event")).data.event.step).toBe(2);
  await run.record({ type: "evaluation-end", step: 3, checkpointStep: 3, metrics: { "eval/reward/mean": 1 } });
  expect((await resumed.next("rows")).data.metrics.eval).toEqual({
    steps: [3],
    columns: { "reward/mean": [1], policy_step: [3] },
  });
});

test("follows several runs, each from its own position, or from now on", async () => {
  const { startRun, open, json } = await setUp();
  const [a, b] = [await startRun("a"), await startRun("b")];
  await a.record(stepEnd(0, 0));
  await b.record(stepEnd(0, 0));
  const ids = Object.fromEntries((await json("/ui/api/runs")).map(({ name, id }: any) => [name, id]));
  const stream = await open(`?run=${ids["a"]}@0.0&run=${ids["b"]}`);
  expect((await stream.next("rows")).data).toMatchObject({ run: ids["a"], metrics: { train: { steps: [0] } } });
  await b.record(stepEnd(1, 0));
  const { id } = await stream.next("event", ({ run, event }) => run === ids["b"] && event.step === 1);
  const resumed = await open(`?run=${ids["a"]}&run=${ids["b"]}`, { "last-event-id": id ?? "" });
  await a.record(stepEnd(1, 0));
  const rows = await resumed.next("rows", ({ run }) => run === ids["a"]);
  expect(rows.data.metrics.train.steps).toEqual([1]);
});

test("waits for the rest of a torn line, also if the line is written again", async () => {
  const { root, startRun, open, json } = await setUp();
  const run = await startRun("a");
  await run.close();
  const path = join(root, "a", "events.jsonl");
  const { size } = await stat(path);
  const [{ id }] = await json("/ui/api/runs");
  const stream = await open(`?run=${id}`);
  await stream.next("runs");
  await appendFile(path, '{"seq":1,"type":"warn');
  await appendFile(path, 'ing","step":4,"message":"first"}\n');
  expect((await stream.next("event")).data.event).toEqual({ seq: 1, type: "warning", step: 4, message: "first" });
  const { size: end } = await stat(path);
  expect(end).toBeGreaterThan(size);
  await appendFile(path, '{"seq":2,"type":"warning","message":"torn');
  await truncate(path, end);
  await appendFile(path, '{"seq":2,"type":"warning","message":"whole"}\n');
  expect((await stream.next("event")).data.event).toMatchObject({ seq: 2, message: "whole" });
});

test("reports a damaged line as the problem of its run, and keeps sending the other runs", async () => {
  const { root, startRun, open, json } = await setUp();
  const [a, b] = [await startRun("a"), await startRun("b")];
  const ids = Object.fromEntries((await json("/ui/api/runs")).map(({ name, id }: any) => [name, id]));
  const stream = await open(`?run=${ids["a"]}&run=${ids["b"]}`);
  await stream.next("runs");
  await appendFile(join(root, "a", "metrics.jsonl"), '{"step":"x"}\n');
  expect((await stream.next("run")).data).toMatchObject({
    id: ids["a"],
    problem: expect.stringContaining("a/metrics.jsonl:1: at `step`") as string,
  });
  await b.record(stepEnd(0, 1));
  expect((await stream.next("rows")).data.run).toBe(ids["b"]);
  await a.close();
});

test("reports a change that a request noticed before the poll", async () => {
  const { startRun, open, json } = await setUp();
  const run = await startRun("a");
  const stream = await open();
  await stream.next("runs");
  await run.record(stepEnd(0, 0.5));
  expect((await json("/ui/api/runs"))[0]).toMatchObject({ steps: 1 });
  expect((await stream.next("run", ({ steps }) => steps === 1)).data.reward).toBe(0.5);
});

test("ends its streams when it is closed", async () => {
  const { dashboard, open } = await setUp();
  const stream = await open();
  await stream.next("runs");
  dashboard.close();
  expect(await stream.read()).toBeNull();
});

test("a subscriber that joins during a poll starts no second one", async () => {
  const { root, startRun } = await setUp();
  await startRun("a");
  const polled = deferred<boolean>();
  const refresh = vi.spyOn(RunReader.prototype, "refresh").mockReturnValue(polled.promise);
  onTestFinished(() => refresh.mockRestore());
  const runs = new Runs([root], 5);
  const subscriber = { watched: new Set<string>(), onChange: () => {} };
  onTestFinished(runs.subscribe(subscriber));
  await expect.poll(() => refresh.mock.calls.length).toBe(1);
  onTestFinished(runs.subscribe(subscriber));
  await delay(50);
  expect(refresh).toHaveBeenCalledTimes(1);
  polled.resolve(false);
  // The search for runs is due again after some time.
  await expect.poll(() => refresh.mock.calls.length).toBeGreaterThan(1);
});
