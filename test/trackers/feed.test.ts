/** Deliveries of a run's events to trackers: order, position, failures and resume. */
import { readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { RunEvent, TrackedEvent, Tracker } from "../../src/training/train/index.ts";
import { setUp, start } from "../train/support.ts";

/** Tracker that stores delivered events in memory. The first `failures` deliveries throw. */
function memoryTracker({ failures = 0, name = "memory" } = {}) {
  const received: TrackedEvent[] = [];
  const states: unknown[] = [];
  let left = failures;
  const tracker: Tracker = {
    name,
    async open(_, state) {
      states.push(state);
      return {
        async log(events) {
          if (left-- > 0) throw new Error("no connection");
          received.push(...events);
          return { events: received.length };
        },
        async close() {},
      };
    },
  };
  return { tracker, received, states };
}

const seqs = (events: readonly TrackedEvent[]) => events.map(({ event }) => event.seq);
const upTo = (count: number) => Array.from({ length: count }, (_, index) => index);

async function warningsOf(run: AsyncIterable<RunEvent>) {
  const warnings = [];
  for await (const event of run) if (event.type === "warning" && event.code.startsWith("tracker")) warnings.push(event);
  return warnings;
}

/** Returns the number of open descriptors of a file in this process. */
async function openFiles(path: string): Promise<number> {
  const names = await readdir("/proc/self/fd");
  const targets = await Promise.all(names.map((name) => readlink(join("/proc/self/fd", name)).catch(() => "")));
  return targets.filter((target) => target === path).length;
}

describe("the trackers of a run", () => {
  it("receive every recorded event once and in order, with the metrics of steps and evaluations", async () => {
    const { tracker, received } = memoryTracker();
    const given = await setUp();
    const { steps } = await start(given, { trackers: [tracker], evaluation: { every: 2 } }).done;
    expect(seqs(received)).toEqual(upTo(received.length));
    expect(received.at(-1)!.event.type).toBe("run-end");
    const plotted = received.filter(({ metrics }) => Object.keys(metrics).length > 0);
    expect(plotted.map(({ event, step }) => [event.type, step])).toEqual([
      ["evaluation-end", 0],
      ["step-end", 0],
      ["step-end", 1],
      ["evaluation-end", 2],
      ["step-end", 2],
      ["evaluation-end", 3],
    ]);
    expect(plotted[1]!.metrics["reward/mean"]).toBeTypeOf("number");
    const saved = JSON.parse(await readFile(join(given.runDir, "trackers", "memory.json"), "utf8"));
    expect(saved).toEqual({ position: received.length - 1, state: { events: received.length } });
    expect(steps).toBe(3);
  });

  it("continue after a resume with the first event that was not confirmed, and with the saved state", async () => {
    const first = memoryTracker();
    const given = await setUp();
    const controller = new AbortController();
    const run = start(given, { trackers: [first.tracker], signal: controller.signal });
    run.events$.subscribe({ next: ({ type }) => type === "job-start" && controller.abort(new Error("cut")), error: () => undefined });
    await expect(run.done).rejects.toThrow("cut");
    const second = memoryTracker();
    await start(given, { trackers: [second.tracker] }).done;
    expect(second.states).toEqual([{ events: first.received.length }]);
    const all = [...first.received, ...second.received];
    expect(seqs(all)).toEqual(upTo(all.length));
    expect(all.filter(({ event }) => event.type === "step-end").map(({ step }) => step)).toEqual([0, 1, 2]);
  });

  it("receive a failed delivery again, and the run warns once with a count", async () => {
    const { tracker, received, states } = memoryTracker({ failures: 2 });
    const given = await setUp();
    const run = start(given, { trackers: [tracker] });
    const warnings = await warningsOf(run);
    await expect(run.done).resolves.toMatchObject({ reason: "completed" });
    expect(seqs(received)).toEqual(upTo(received.length));
    expect(received.filter(({ event }) => event.type === "step-end")).toHaveLength(3);
    // A new session after each failure.
    expect(states).toEqual([null, null, null]);
    expect(warnings).toMatchObject([
      { code: "tracker-memory", count: 1, message: 'The tracker "memory" failed: no connection' },
      { code: "tracker-memory", count: 1, message: expect.stringContaining("All events were delivered in the end") },
    ]);
  });

  it("do not stop the run if they always fail, and receive everything when the run is started again", async () => {
    const failing = memoryTracker({ failures: Infinity });
    const other = memoryTracker({ name: "other" });
    const given = await setUp();
    const run = start(given, { trackers: [failing.tracker, other.tracker] });
    const warnings = await warningsOf(run);
    await expect(run.done).resolves.toMatchObject({ reason: "completed", steps: 3 });
    expect(warnings.at(-1)!.message).toMatch(/no connection\. \d+ events are left; start the run again to send them$/);
    expect(other.received.filter(({ event }) => event.type === "step-end")).toHaveLength(3);
    const later = memoryTracker();
    await start(given, { trackers: [later.tracker] }).done;
    expect(seqs(later.received)).toEqual(upTo(later.received.length));
    expect(later.received.filter(({ event }) => event.type === "step-end").map(({ step }) => step)).toEqual([0, 1, 2]);
  });

  it.skipIf(process.platform !== "linux")("open sessions without leaving the events of the run open", async () => {
    const given = await setUp();
    const { tracker, states } = memoryTracker({ failures: 2 });
    await start(given, { trackers: [tracker] }).done;
    expect(states).toHaveLength(3);
    await expect.poll(() => openFiles(join(given.runDir, "events.jsonl"))).toBe(0);
  });

  it("need different names that are usable in a file name", async () => {
    const given = await setUp();
    const { tracker } = memoryTracker();
    expect(() => start(given, { trackers: [tracker, tracker] })).toThrow(/different names for the trackers of a run, got "memory" twice/);
    expect(() => start(given, { trackers: [{ ...tracker, name: "../memory" }] })).toThrow(/Expected the `name` of a tracker to consist of/);
  });
});
