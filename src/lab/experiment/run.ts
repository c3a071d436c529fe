/** A run directory as an object: state, metrics, checkpoints and rollouts. `openRun` creates it. */
import { join } from "node:path";
import { ArgumentError, NotFoundError } from "../../base/errors.ts";
import type { CheckpointData, ColumnsData, NoticeData, RunStatus, Split } from "../../run/data.ts";
import { trajectoryFile } from "../../run/files.ts";
import type { RunFiles } from "../../run/read-run.ts";
import { runStatusOf } from "../../run/status.ts";
import { readGroups } from "../../run/read-groups.ts";
import { TrajectoryGroup } from "../../base/trajectory/index.ts";
import { isRecord } from "../../base/util/values.ts";

/**
 * State of a run. `running`: a live process holds its lock. `interrupted`: its process ended without recording an end, and the same command
 * resumes the run. `failed`: an error ended it. `completed`, `stopped`, `early-stop` and `nothing-to-learn` are the reasons of `run-end`
 * events. `unknown`: the directory records no events.
 */
export type RunState = "running" | "interrupted" | "failed" | "completed" | "stopped" | "early-stop" | "nothing-to-learn" | "unknown";

/** Options of the readers of a run directory. */
export interface ReadRunOptions {
  /** Stops reading: the call rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Split, step and signal for {@link Run.groups}. */
export interface RunGroupsOptions extends ReadRunOptions {
  /** Origin of the rollouts. @default "train" */
  readonly split?: Split | undefined;
  /** Step of the run; for evaluations, the number of steps completed before the evaluation. @default all steps with rollouts, ascending */
  readonly step?: number | undefined;
}

/** Evaluation of a run, selected by `run.at(step)`. */
export interface Subject {
  /** Run that stored the evaluation. */
  readonly run: Run;
  /** Number of completed steps before the evaluation; undefined for the last evaluation. */
  readonly step?: number | undefined;
  /** Name in tables and charts. */
  readonly name: string;
}

/** Results of one scenario in an evaluation. */
export interface ScenarioResult {
  /** Index in the list of `eval` scenarios, over all environments of the run. */
  readonly index: number;
  /**
   * Id of the scenario, `<environment>/<id>` in a run on several environments; null if all its rollouts failed, or if the run stored no
   * ids.
   */
  readonly scenario: string | null;
  /** Reward of each rollout that did not fail. */
  readonly rewards: readonly number[];
  /** Metrics of each rollout that did not fail, aligned with `rewards`. */
  readonly metrics: readonly Readonly<Record<string, number | boolean>>[];
  /** Number of failed rollouts. */
  readonly exceptions: number;
}

/**
 * A run directory at the time of opening: configuration, state and all metrics in memory; rollouts are read from disk when asked
 * for. Open the directory again for newer contents.
 */
export class Run {
  /** Absolute path of the run directory. */
  readonly dir: string;
  /** Name of the directory, or the name given to {@link named}. */
  readonly name: string;
  /** Contents of `config.json`; empty without the file. */
  readonly config: Readonly<Record<string, unknown>>;
  /** State at the time of opening. */
  readonly state: RunState;
  /** Message of the error that ended a failed run; null for every other state. */
  readonly error: string | null;
  /** Checkpoints that the run created, ascending by step. */
  readonly checkpoints: readonly CheckpointData[];
  /** Recorded warnings and failures, newest first; at most 100. */
  readonly notices: readonly NoticeData[];
  /** First and last time recorded in any file, in milliseconds since 1970; null if no file records a time. */
  readonly span: readonly [firstMs: number, lastMs: number] | null;
  readonly #files: RunFiles;

  /** @internal */
  constructor(dir: string, name: string, files: RunFiles, isLocked: boolean) {
    this.dir = dir;
    this.name = name;
    this.config = isRecord(files.config) ? files.config : {};
    const status = runStatusOf(files.end, { isLocked, hasEvents: files.events.length > 0 });
    this.state = stateName(status);
    this.error = status.kind === "failed" ? status.message : null;
    this.checkpoints = files.checkpoints;
    this.notices = files.notices;
    this.span = files.span;
    this.#files = files;
  }

  /** Number of completed training steps. */
  get steps(): number {
    return this.#files.metrics.train.steps.length;
  }

  /** Numbers of completed steps after which the run has rollouts of an evaluation, ascending. */
  get evaluations(): readonly number[] {
    return this.#files.trajectories.eval;
  }

  /**
   * Returns the metrics of all steps, or of all evaluations, as columns. A metric of an evaluation has the same name as in training:
   * `reward/mean` instead of `eval/reward/mean`.
   *
   * @param split - Rows of training steps or of evaluations.
   * @returns Steps, ascending, and a column per metric; null for a step without the metric.
   * @example
   * ```ts
   * import { openRun } from "whetstone/experiment";
   *
   * const run = await openRun("runs/reverse");
   * const { steps, columns } = run.metrics();
   * console.log(steps.at(-1), columns["reward/mean"]?.at(-1));
   * ```
   */
  metrics(split: Split = "train"): ColumnsData {
    return this.#files.metrics[split];
  }

  /**
   * Returns the values of one metric as points, for a chart.
   *
   * @param metric - Name of the metric, such as `reward/mean`.
   * @param split - Rows of training steps or of evaluations.
   * @returns `[step, value]` for each step with the metric, ascending.
   * @throws NotFoundError `E_NOT_FOUND` if no row has the metric; the message lists the metrics of the run.
   * @example
   * ```ts
   * import { openRun } from "whetstone/experiment";
   *
   * const run = await openRun("runs/reverse");
   * console.log(run.series("reward/mean").at(-1)); // [19, 0.82]
   * ```
   */
  series(metric: string, split: Split = "train"): [step: number, value: number][] {
    const { steps, columns } = this.metrics(split);
    const values = columns[metric];
    if (values === undefined) {
      const known = Object.keys(columns).join(", ") || "none";
      throw new NotFoundError(`Run \`${this.name}\` has no metric \`${metric}\` in its ${split} rows; it has: ${known}`, {
        param: "metric",
      });
    }
    return steps.flatMap((step, index) => (typeof values[index] === "number" ? [[step, values[index]] as [number, number]] : []));
  }

  /**
   * Reads stored rollouts, one group at a time. Of a group that a crash caused to be written twice, the first one counts.
   *
   * @param options - Split, step and signal.
   * @returns The groups, step by step, in the order of their file.
   * @throws DataError `E_DATA` with file and line for a line that is not a group.
   * @throws the signal's reason.
   * @example
   * ```ts
   * import { openRun } from "whetstone/experiment";
   *
   * const run = await openRun("runs/reverse");
   * for await (const { rewards } of run.groups({ step: 0 })) console.log(rewards);
   * ```
   */
  async *groups({ split = "train", step, signal }: RunGroupsOptions = {}): AsyncGenerator<TrajectoryGroup, void, undefined> {
    const steps = this.#files.trajectories[split].filter((each) => step === undefined || each === step);
    for (const each of steps) {
      for await (const { group } of this.#groupLines(split, each, signal)) yield TrajectoryGroup.fromJSON(group);
    }
  }

  /**
   * Reads the results of an evaluation, one entry per scenario.
   *
   * @param step - Number of completed steps before the evaluation; undefined for the last evaluation.
   * @param options - Signal.
   * @returns Results in the order of the environment's list.
   * @throws NotFoundError `E_NOT_FOUND` if the run has no such evaluation; the message lists the evaluations.
   * @throws DataError `E_DATA` with file and line for a line that is not a group.
   * @example
   * ```ts
   * import { openRun } from "whetstone/experiment";
   *
   * const run = await openRun("runs/reverse");
   * const hardest = (await run.evaluation()).toSorted((a, b) => Math.max(...a.rewards) - Math.max(...b.rewards));
   * console.log(hardest.slice(0, 3).map(({ scenario }) => scenario));
   * ```
   */
  async evaluation(step?: number, { signal }: ReadRunOptions = {}): Promise<ScenarioResult[]> {
    const evaluationStep = this.evaluationStep(step);
    const results: ScenarioResult[] = [];
    for await (const { scenario: index, group } of this.#groupLines("eval", evaluationStep, signal)) {
      results.push({
        index,
        scenario: scenarioName(group.metadata),
        rewards: group.trajectories.map(({ reward }) => reward),
        metrics: group.trajectories.map(({ metrics }) => metrics),
        exceptions: group.exceptions.length,
      });
    }
    return results.sort((a, b) => a.index - b.index);
  }

  /** Reads the groups of a step. A group may be written twice around a crash; the first one counts, as in training. */
  async *#groupLines(split: Split, step: number, signal: AbortSignal | undefined): ReturnType<typeof readGroups> {
    const seenScenarios = new Set<number>();
    for await (const line of readGroups(join(this.dir, trajectoryFile(split, step)), { signal })) {
      if (!seenScenarios.has(line.scenario)) yield line;
      seenScenarios.add(line.scenario);
    }
  }

  /**
   * Resolves the step of an evaluation.
   *
   * @internal
   */
  evaluationStep(step: number | undefined): number {
    const evaluation = step === undefined ? this.evaluations.at(-1) : this.evaluations.find((each) => each === step);
    if (evaluation !== undefined) return evaluation;
    const known = this.evaluations.length === 0 ? "no evaluation" : `evaluations after ${this.evaluations.join(", ")} steps`;
    throw new NotFoundError(`Run \`${this.name}\` has ${known}${step === undefined ? "" : `, and none after ${step} steps`}`, {
      param: "step",
    });
  }

  /**
   * Selects an evaluation of this run for `compare`.
   *
   * @param step - Number of completed steps before the evaluation.
   * @returns Subject named `<run>@<step>`.
   * @throws NotFoundError `E_NOT_FOUND` if the run has no such evaluation.
   * @example
   * ```ts
   * import { openRun } from "whetstone/experiment";
   *
   * const run = await openRun("runs/reverse");
   * const [first, last] = [run.at(0), run.at(20)];
   * ```
   */
  at(step: number): Subject {
    return { run: this, step: this.evaluationStep(step), name: `${this.name}@${step}` };
  }

  /**
   * Returns the same run under another name, for tables and legends.
   *
   * @param name - Not empty.
   * @returns Copy that shares all data.
   * @throws ArgumentError `E_ARGUMENT` for an empty name.
   * @example
   * ```ts
   * import { openRun } from "whetstone/experiment";
   *
   * const run = (await openRun("runs/2026-11-22")).named("learning rate 3e-4");
   * ```
   */
  named(name: string): Run {
    if (name === "") throw new ArgumentError("Expected `name` to be a text that is not empty", { param: "name" });
    return new Run(this.dir, name, this.#files, this.state === "running");
  }
}

/** Returns the id of a group's scenario, with the environment in a run on several; null if the group has no id. */
function scenarioName({ scenario_id: id, environment }: TrajectoryGroup["metadata"]): string | null {
  if (id === undefined) return null;
  return environment === undefined ? String(id) : `${environment}/${id}`;
}

/** Returns the state of a status; `unknown` for a reason that this version of the package does not know. */
function stateName(status: RunStatus): RunState {
  if (status.kind !== "ended") return status.kind;
  return isKnownEnd(status.reason) ? status.reason : "unknown";
}

/** Reasons of `run-end` events. */
const ENDS = ["completed", "stopped", "early-stop", "nothing-to-learn"] as const;

/** Whether a reason is one of {@link ENDS}. */
function isKnownEnd(reason: string): reason is (typeof ENDS)[number] {
  return (ENDS as readonly string[]).includes(reason);
}
