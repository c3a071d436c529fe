/** Progress of a training run on standard error, fed with the run's events; see `base/progress`. */
import { bar, duration, grouped, rate, startProgress, WarningCounts, type ProgressTask } from "../../base/progress/index.ts";
import type { LiveEventBody, Metrics, RunEndReason, RunEvent, SettingChange } from "../../run/events.ts";
import type { RunOptions } from "./options.ts";
import { changesText } from "./setting-changes.ts";
import type { ResumeState } from "../../run/resume-state.ts";

/** Steps over which the trend of the reward is computed. */
const TREND_STEPS = 20;
/** Share of a step that its rollouts count for in the bar; the rest is its job. */
const ROLLOUT_SHARE = 0.5;
/** Min time between two lines about an unavailable service, in milliseconds. */
const REMINDER_MS = 60_000;

/** Event of a prepared step. */
type BatchEnd = RunEvent & { readonly type: "batch-end" };
/** Event of rollouts in progress. */
type RolloutProgress = LiveEventBody & { readonly type: "rollout-progress" };
/** Event of gradient steps in progress. */
type JobProgress = LiveEventBody & { readonly type: "job-progress" };

/** Run that a {@link RunDisplay} shows. */
export interface DisplayedRun {
  /** Directory of the run, as the caller wrote it. */
  readonly runDir: string;
  /** Steps of the whole run, or checkpoints of an evaluation. */
  readonly count: number;
  /** Steps or checkpoints completed before the start. */
  readonly completed: number;
  /** Unit of `count`. */
  readonly unit: "steps" | "checkpoints";
  /** State at the start of the display. */
  readonly state: ResumeState;
}

/** Progress display of a training run, fed with the run's events. */
export class RunDisplay {
  readonly #title: string;
  readonly #count: number;
  readonly #unit: DisplayedRun["unit"];
  readonly #startedMs = performance.now();
  /** Completed fraction of the run at the start of the display. */
  readonly #startFraction: number;
  readonly #warnings = new WarningCounts();
  /** Mean reward of each step; empty for a run without rewards. */
  readonly #rewards: number[];
  readonly #task: ProgressTask;
  /** Number of completed steps or checkpoints. */
  #completed: number;
  /** Metrics of the newest step; in a run without rewards, of the newest gradient step. */
  #metrics: Metrics;
  /** Rollouts in progress; null between them. */
  #rollouts: RolloutProgress | null = null;
  /** Start of the newest rollouts, by `performance.now()`. */
  #rolloutsStartedMs = 0;
  /** Completed fraction of the training rollouts by step, for the current step and later ones. */
  readonly #rolloutFractions = new Map<number, number>();
  /** Newest batch; null before the first. */
  #batch: BatchEnd | null = null;
  /** Job of the current step; null before its first gradient step. */
  #job: JobProgress | null = null;
  /** Newest speed in tokens per second as text. */
  #speed: string | null = null;
  /** Recorded reason of the end; null while the run proceeds. */
  #reason: RunEndReason | null = null;
  /** Time of the last line about an unavailable service, in milliseconds of `performance.now()`. */
  #remindedMs = -Infinity;

  constructor({ runDir, count, completed, unit, state }: DisplayedRun, option: RunOptions["progress"]) {
    this.#title = runDir;
    this.#count = count;
    this.#unit = unit;
    this.#completed = completed;
    this.#startFraction = this.#completed / count;
    this.#metrics = state.steps.at(-1)?.metrics ?? {};
    this.#rewards = state.steps.flatMap(({ metrics }) => metrics["reward/mean"] ?? []);
    this.#task = startProgress(option, { block: () => this.#block(), line: () => `${this.#title}: ${this.#current()}` });
  }

  /** Shows an event. */
  update(event: RunEvent): void {
    this.#apply(event);
    const line = this.#lineOf(event);
    if (line !== null) this.#task.print(`${this.#title}: ${line}`);
    this.#task.refresh();
  }

  /** Prints a line about the run. */
  note(text: string): void {
    this.#task.print(`${this.#title}: ${text}`);
  }

  /** Ends the display. `failure` is absent for a run that has reached its end. */
  end(failure?: "stopped" | "ended by an error"): void {
    const seconds = (performance.now() - this.#startedMs) / 1000;
    const ending = failure ?? this.#reason ?? "completed";
    const warnings = this.#warnings.summary();
    const text = joined([`${ending} after ${this.#steps()} in ${duration(seconds)}`, this.#result()]);
    this.#task.end(`${this.#title}: ${text}${warnings === null ? "" : `; warnings: ${warnings}`}`);
  }

  /** Updates the fields from an event. */
  #apply(event: RunEvent): void {
    switch (event.type) {
      case "rollout-progress":
        this.#rollouts = event;
        if (event.split === "train") this.#raiseRollouts(event.step, event.completed / event.total);
        this.#speed = rate(event.completionTokens, (performance.now() - this.#rolloutsStartedMs) / 1000) ?? this.#speed;
        break;
      case "step-start":
      case "evaluation-start":
        this.#rolloutsStartedMs = performance.now();
        this.#rollouts = null;
        break;
      case "evaluation-end":
        if (this.#unit === "checkpoints") this.#completed++;
        this.#rollouts = null;
        break;
      case "batch-end":
        this.#batch = event;
        break;
      case "rollouts-end":
        this.#rollouts = null;
        this.#raiseRollouts(event.step, 1);
        break;
      case "job-progress":
        this.#job = event;
        break;
      case "gradient-step":
        if (this.#rewards.length === 0) this.#metrics = event.metrics;
        break;
      case "step-end": {
        this.#completed = event.step + 1;
        this.#metrics = event.metrics;
        this.#job = null;
        this.#rolloutFractions.delete(event.step);
        const reward = event.metrics["reward/mean"];
        if (reward !== undefined) this.#rewards.push(reward);
        this.#speed = speedOf(event.metrics) ?? this.#speed;
        break;
      }
      case "run-end":
        this.#reason = event.reason;
        break;
      default:
    }
  }

  /** Sets the completed fraction of a step's rollouts, unless it is lower than before, as in a further round of rollouts. */
  #raiseRollouts(step: number, fraction: number): void {
    this.#rolloutFractions.set(step, Math.max(fraction, this.#rolloutFractions.get(step) ?? 0));
  }

  /** Returns the line to print for an event; null for most events. */
  #lineOf(event: RunEvent): string | null {
    switch (event.type) {
      case "warning":
        return this.#warnings.add(event.code, event.count) ? `warning ${event.code}: ${event.message}` : null;
      case "step-skip":
        return this.#warnings.add("step-skip") ? `step skipped: ${event.message}` : null;
      case "run-resume": {
        if (this.#completed > this.#count) return `already has ${this.#completed} ${this.#unit}, ${this.#count} requested`;
        const checkpoint = this.#unit === "steps" ? `, from checkpoint ${event.checkpointStep}` : "";
        return `resumes after ${this.#steps()}${checkpoint}${changesNote(event.changes)}`;
      }
      case "service-unavailable":
        return this.#isReminderDue() ? `waits for the service, which must run until the run ends: ${event.message}` : null;
      case "job-fail":
        return `job of step ${event.step} failed: ${event.message}`;
      case "evaluation-end":
        return evaluationLine(event.checkpointStep, event.metrics);
      case "step-end":
        // On a terminal, the block shows the same.
        if (this.#task.isTerminal) return null;
        return joined([this.#steps(), this.#result(), this.#selection(), this.#speed, this.#remainingTime()]);
      default:
        return null;
    }
  }

  /** Returns whether the last line about an unavailable service is long enough ago. If so, the time counts anew from now. */
  #isReminderDue(): boolean {
    const nowMs = performance.now();
    if (nowMs - this.#remindedMs < REMINDER_MS) return false;
    this.#remindedMs = nowMs;
    return true;
  }

  /** Returns the lines of the display on a terminal. */
  #block(): string[] {
    const fraction = this.#fraction();
    const percentage = `${Math.floor(fraction * 100)} %`;
    const lines = [`${this.#title}  ${this.#steps()} ${bar(fraction)} ${joined([percentage, this.#remainingTime()])}`];
    const state = joined([this.#activity(), this.#result(), this.#selection(), this.#speed]);
    if (state !== "") lines.push(`  ${state}`);
    const warnings = this.#warnings.summary();
    if (warnings !== null) lines.push(`  warnings: ${warnings}`);
    return lines;
  }

  /** Returns the display as one line. */
  #current(): string {
    return joined([this.#steps(), this.#activity(), this.#result(), this.#speed, this.#remainingTime()]);
  }

  /** Returns the number of completed steps or checkpoints. */
  #steps(): string {
    // A resumed run may request fewer steps than it has.
    return this.#completed > this.#count ? `${this.#completed} ${this.#unit}` : `${this.#completed} of ${this.#count} ${this.#unit}`;
  }

  /** Returns the rollouts or gradient steps in progress; null between them. */
  #activity(): string | null {
    if (this.#rollouts !== null) {
      const { split, completed, total, running, exceptions } = this.#rollouts;
      const kind = split === "eval" ? "evaluation rollouts" : "rollouts";
      const failed = exceptions === 0 ? "" : `, ${grouped(exceptions)} failed`;
      return `${grouped(completed)}/${grouped(total)} ${kind}, ${grouped(running)} running${failed}`;
    }
    if (this.#job === null) return null;
    const { completed, total } = this.#job;
    return `gradient step ${grouped(completed)}/${grouped(total)}`;
  }

  /** Returns the reward with its trend, or the loss of a run without rewards. */
  #result(): string | null {
    const reward = this.#rewards.at(-1);
    if (reward !== undefined) {
      const slope = trend(this.#rewards.slice(-TREND_STEPS));
      if (slope === null) return `reward ${reward.toFixed(3)}`;
      return `reward ${reward.toFixed(3)} (${slope < 0 ? "" : "+"}${slope.toFixed(4)} per step)`;
    }
    const loss = this.#metrics["loss"];
    return loss === undefined ? null : `loss ${loss.toFixed(4)}`;
  }

  /** Returns the numbers of the newest batch with discarded groups or removed trajectories; null if all are kept. */
  #selection(): string | null {
    if (this.#batch === null) return null;
    const { sampled, kept, discarded, removed } = this.#batch;
    const reasons = [...Object.entries(discarded), ...Object.entries(removed)].map(([reason, count]) => `${grouped(count)} ${reason}`);
    return reasons.length === 0 ? null : `kept ${grouped(kept)} of ${grouped(sampled)} groups (${reasons.join(", ")})`;
  }

  /**
   * Returns the completed fraction of the run. The current step counts by its rollouts and its job, in a supervised run by its job alone;
   * rollouts for later steps do not count.
   */
  #fraction(): number {
    if (this.#unit === "checkpoints") {
      const { completed, total } = this.#rollouts ?? { completed: 0, total: 1 };
      return Math.min(1, (this.#completed + completed / total) / this.#count);
    }
    const job = this.#job === null ? 0 : this.#job.completed / this.#job.total;
    const rollouts = this.#rolloutFractions.get(this.#completed);
    const share = rollouts === undefined ? job : ROLLOUT_SHARE * rollouts + (1 - ROLLOUT_SHARE) * job;
    return Math.min(1, (this.#completed + share) / this.#count);
  }

  /** Returns the remaining time at the speed since the start; null before any progress and at the end. */
  #remainingTime(): string | null {
    const fraction = this.#fraction();
    const doneSinceStart = fraction - this.#startFraction;
    if (doneSinceStart <= 0 || fraction >= 1) return null;
    const seconds = (performance.now() - this.#startedMs) / 1000;
    return `${duration((seconds * (1 - fraction)) / doneSinceStart)} left`;
  }
}

/** Returns the end of the line of a resume: the settings that have changed. */
function changesNote(changes: readonly SettingChange[] = []): string {
  return changes.length === 0 ? "" : `, with changed settings: ${changesText(changes)}`;
}

/** Returns the line of an evaluation. */
function evaluationLine(checkpointStep: number, metrics: Metrics): string {
  const reward = metrics["eval/reward/mean"];
  return `evaluation of checkpoint ${checkpointStep}: reward ${reward === undefined ? "unknown" : reward.toFixed(3)}`;
}

/** Joins the parts that are not null. */
function joined(parts: readonly (string | null)[]): string {
  return parts.filter((part) => part !== null).join(", ");
}

/** Returns the tokens per second of a step: of its rollouts, or of the training of a supervised step. */
function speedOf(metrics: Metrics): string | null {
  const rollouts = rate(metrics["rollout/completion_tokens"] ?? 0, metrics["time/rollouts_seconds"] ?? 0);
  return rollouts ?? rate(metrics["time/tokens_per_second"] ?? 0, 1);
}

/** Returns the slope of the least-squares line through equidistant values; null for fewer than three. */
export function trend(values: readonly number[]): number | null {
  const count = values.length;
  if (count < 3) return null;
  const center = (count - 1) / 2;
  const mean = values.reduce((sum, value) => sum + value, 0) / count;
  const covariance = values.reduce((sum, value, index) => sum + (index - center) * (value - mean), 0);
  // Sum of the squared distances of 0, 1, 2 … from their center.
  const variance = (count * (count * count - 1)) / 12;
  return covariance / variance;
}
