/**
 * Delivery of a run's recorded events to its trackers. Each tracker has a {@link Feed}: a queue of unconfirmed events, which are delivered in
 * order, and again after a failure.
 */
import { createHash } from "node:crypto";
import { basename, join } from "node:path";
import { ArgumentError } from "../../base/errors.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { delay } from "../../base/util/delay.ts";
import type { Metrics, RecordedEvent } from "../../run/events.ts";
import { RUN_CONFIG_FILE } from "../../run/files.ts";
import { readRunConfig } from "../../run/read-run.ts";
import { readEvents, type RunDirectory } from "../../run/run-directory.ts";
import { readTrackerPosition, writeTrackerPosition, type TrackerPosition } from "../../run/tracker-position.ts";
import type { TrackedEvent, TrackedRun, Tracker, TrackerSession } from "./tracker.ts";
import { messageOf } from "../../base/util/values.ts";

/** Max events of one delivery. */
const BATCH_EVENTS = 500;
/** Timeout of one delivery, milliseconds. */
const DELIVERY_TIMEOUT_MS = 30_000;
/** Max time for the remaining deliveries at the end of a run, milliseconds. */
const FLUSH_TIMEOUT_MS = 30_000;
/** Max failed attempts to deliver the remaining events when the run has ended. */
const FINAL_ATTEMPTS = 3;
/** Max wait between two attempts to deliver, milliseconds. */
const MAX_WAIT_MS = 60_000;

/**
 * Checks the trackers of a run.
 *
 * @throws ArgumentError `E_ARGUMENT` for an invalid name, or for two trackers of the same name.
 */
export function checkTrackers(trackers: readonly Tracker[] | undefined): void {
  const names = new Set<string>();
  for (const { name } of trackers ?? []) {
    if (typeof name !== "string" || !/^[\w.-]+$/u.test(name) || name.startsWith(".")) {
      const expected = 'the `name` of a tracker to consist of letters, digits, "-", "_" and "."';
      throw new ArgumentError(`Expected ${expected}, got ${JSON.stringify(name)}`, { param: "trackers" });
    }
    if (names.has(name)) {
      throw new ArgumentError(`Expected different names for the trackers of a run, got "${name}" twice; set the option \`name\` of one`, {
        param: "trackers",
      });
    }
    names.add(name);
  }
}

/** Deliveries of the recorded events of one run to its trackers. */
export interface TrackerFeeds {
  /** Delivers the remaining events, as far as possible within 30 seconds, and closes the trackers. Never throws. */
  readonly finish: () => Promise<void>;
}

/**
 * Starts the deliveries with the first event that a tracker has not confirmed. Call it while no event is being recorded, so that none falls
 * between the recorded events and the live ones.
 */
export async function feedTrackers(directory: RunDirectory, trackers: readonly Tracker[]): Promise<TrackerFeeds> {
  const onFailure = (name: string, error: unknown) =>
    void directory.record(warning(directory, name, 1, messageOf(error))).catch(() => undefined);
  const feeds = await Promise.all(
    trackers.map(async (tracker) => new Feed(directory, tracker, await readTrackerPosition(directory.path, tracker.name), onFailure)),
  );
  const eventMetrics = new EventMetrics();
  const push = (event: RecordedEvent) => {
    const tracked = eventMetrics.of(event);
    for (const feed of feeds) feed.push(tracked);
  };
  if (feeds.length > 0) for await (const event of readEvents(directory.path)) push(event);
  const subscription = directory.live$.subscribe((event) => {
    if (event.seq !== null) push(event);
  });
  return {
    async finish() {
      await Promise.all(feeds.map((feed) => feed.finish()));
      subscription.unsubscribe();
      for (const feed of feeds) {
        const message = closingMessage(feed);
        if (message === null) continue;
        // `onFailure` has recorded the first failure; the warning at the end counts the others.
        const count = Math.max(1, feed.failures - 1);
        // Undelivered events are sent by the next start, with or without the warning.
        await directory.record(warning(directory, feed.name, count, message)).catch(() => undefined);
      }
    },
  };
}

/** Returns the message of the warning at the end of a run; null if all events are delivered, with at most one failure. */
function closingMessage({ failures, undelivered, lastError }: Feed): string | null {
  if (failures < 2 && undelivered === 0) return null;
  const reason = failures === 0 ? "it was too slow" : messageOf(lastError);
  if (undelivered === 0) return `${reason}. All events were delivered in the end`;
  return `${reason}. ${undelivered} events are left; start the run again to send them`;
}

/** Returns the event of a warning about a tracker. */
function warning({ state }: RunDirectory, name: string, count: number, message: string) {
  return {
    type: "warning",
    step: state.steps.length,
    code: `tracker-${name}`,
    count,
    message: `The tracker "${name}" failed: ${message}`,
  } as const;
}

/** Queue of the events that one tracker has not confirmed, and their delivery in order. */
class Feed {
  readonly name: string;
  readonly #tracker: Tracker;
  readonly #directory: RunDirectory;
  readonly #onFailure: OnFailure;
  /** `seq` of the last confirmed event. */
  #position: number;
  /** Value that the tracker returned for the last confirmed event. */
  #state: unknown;
  /** Events that are not confirmed, oldest first. */
  #pending: TrackedEvent[] = [];
  /** Open session; null before the first delivery, and after a failure. */
  #session: TrackerSession | null = null;
  /** Delivery of the pending events; null while there are none. */
  #working: Promise<void> | null = null;
  /** Aborts the wait before the next attempt. */
  #retryNow = new AbortController();
  /** Whether the run has ended. */
  #isFinishing = false;
  /** Aborts deliveries that have not ended in time after the end of the run. */
  readonly #stop = new AbortController();
  /** Number of failed deliveries. */
  failures = 0;
  /** Error of the newest failed delivery. */
  lastError: unknown;

  constructor(directory: RunDirectory, tracker: Tracker, saved: TrackerPosition, onFailure: OnFailure) {
    this.name = tracker.name;
    this.#tracker = tracker;
    this.#directory = directory;
    this.#position = saved.position;
    this.#state = saved.state;
    this.#onFailure = onFailure;
  }

  /** Number of events that are not confirmed. */
  get undelivered(): number {
    return this.#pending.length;
  }

  /** Adds an event, unless an earlier start of the run has delivered it. */
  push(event: TrackedEvent): void {
    if (event.event.seq <= this.#position) return;
    this.#pending.push(event);
    this.#working ??= this.#work();
  }

  /** Delivers the remaining events within {@link FLUSH_TIMEOUT_MS}, and closes the session. */
  async finish(): Promise<void> {
    this.#isFinishing = true;
    this.#retryNow.abort();
    const timer = setTimeout(() => this.#stop.abort(new Error("the run has ended")), FLUSH_TIMEOUT_MS);
    // A tracker may ignore its signal; the run does not wait for it.
    const stopped = new Promise<void>((resolve) => this.#stop.signal.addEventListener("abort", () => resolve(), { once: true }));
    await Promise.race([this.#working ?? Promise.resolve(), stopped]);
    await Promise.race([this.#close(), stopped]);
    clearTimeout(timer);
  }

  /**
   * Delivers pending events until none is left; after a failure, tries again with growing waits. When the run ends, stops after
   * {@link FINAL_ATTEMPTS} further failures.
   */
  async #work(): Promise<void> {
    /** Failures since the end of the run. */
    let finalFailures = 0;
    /** Failures since the last successful delivery. */
    let consecutiveFailures = 0;
    try {
      while (this.#pending.length > 0 && !this.#stop.signal.aborted) {
        try {
          await this.#deliver(this.#pending.slice(0, BATCH_EVENTS));
          consecutiveFailures = 0;
        } catch (error) {
          this.#fail(error);
          // A new session starts from the saved state, without the effects of the failed delivery.
          await this.#close();
          if (this.#isFinishing) finalFailures++;
          if (finalFailures >= FINAL_ATTEMPTS) return;
          await this.#wait(backoffMs(consecutiveFailures, { maxMs: MAX_WAIT_MS }));
          consecutiveFailures++;
        }
      }
    } finally {
      this.#working = null;
    }
  }

  /** Closes the session. Never rejects. */
  async #close(): Promise<void> {
    const session = this.#session;
    this.#session = null;
    await session?.close().catch((error: unknown) => this.#fail(error));
  }

  /** Waits before the next attempt, until the end of the run at most. */
  async #wait(ms: number): Promise<void> {
    this.#retryNow = new AbortController();
    const signal = this.#isFinishing ? this.#stop.signal : AbortSignal.any([this.#retryNow.signal, this.#stop.signal]);
    await delay(ms, { signal }).catch(() => undefined);
  }

  /** Delivers events and saves the position after them. */
  async #deliver(events: readonly TrackedEvent[]): Promise<void> {
    const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(DELIVERY_TIMEOUT_MS)]);
    this.#session ??= await this.#tracker.open(await trackedRun(this.#directory), this.#state, signal);
    const state = await this.#session.log(events, signal);
    const position = (events.at(-1) as TrackedEvent).event.seq;
    await writeTrackerPosition(this.#directory.path, this.name, { position, state });
    this.#position = position;
    this.#state = state;
    this.#pending.splice(0, events.length);
  }

  /** Counts a failure. */
  #fail(error: unknown): void {
    this.failures++;
    this.lastError = error;
    if (this.failures === 1) this.#onFailure(this.name, error);
  }
}

/** Called at the first failure of a tracker. */
type OnFailure = (name: string, error: unknown) => void;

/** Returns the run as trackers see it. */
async function trackedRun(directory: RunDirectory): Promise<TrackedRun> {
  const runDir = directory.path;
  const config = (await readRunConfig(join(runDir, RUN_CONFIG_FILE))) as Readonly<Record<string, unknown>>;
  const events = readEvents(runDir);
  const { value: firstEvent } = await events.next();
  // Closes the file.
  await events.return();
  const { time, modelId } = firstEvent as RecordedEvent & { readonly type: "run-start" };
  return {
    id: createHash("sha256").update(`${modelId}\n${time}`).digest("hex").slice(0, 32),
    name: basename(runDir),
    runDir,
    config,
    async *events(lastSeq) {
      const eventMetrics = new EventMetrics();
      for await (const event of readEvents(runDir)) {
        if (event.seq > lastSeq) return;
        yield eventMetrics.of(event);
      }
    },
    groups: (split, step) => directory.groups(split, step),
  };
}

/** Adds to recorded events, given in the order of the run, the metrics and the step that trackers plot. */
class EventMetrics {
  /** Whether a step of the run is a job of many gradient steps. */
  #hasLongJobs = false;
  /** Number of gradient steps so far. */
  #gradientSteps = 0;

  /** Returns the next event of the run with its metrics. */
  of(event: RecordedEvent): TrackedEvent {
    if (event.type === "run-start") this.#hasLongJobs = event.kind === "sft" || event.kind === "preference";
    if (event.type === "step-end" || event.type === "evaluation-end") return { event, step: event.step, metrics: event.metrics };
    if (event.type !== "gradient-step" || !this.#hasLongJobs) return { event, step: 0, metrics: {} };
    const { gradient_step: _gradientStep, ...plotted } = event.metrics;
    const metrics: Metrics = Object.fromEntries(Object.entries(plotted).map(([name, value]) => [`gradient/${name}`, value]));
    const step = this.#gradientSteps;
    this.#gradientSteps++;
    return { event, step, metrics };
  }
}
