/**
 * JSON of the dashboard's routes, `/ui/api/*`: the server writes these types and the scripts in `page/` read them.
 *
 * The session cookie also authorizes the routes of the service, so the page reads models, checkpoints and jobs, and samples, through
 * `/v1/*` (types in `src/base/schema`). An error of any route is an `ErrorBody` of `src/base/schema` with a message that names the damaged file.
 *
 * | route | response |
 * |---|---|
 * | `GET /ui/api/session` | {@link BrowserSession} |
 * | `GET /ui/api/runs` | {@link RunSummary}`[]`, the last written first |
 * | `GET /ui/api/runs/{run}` | {@link RunDetails} |
 * | `GET /ui/api/metrics?run=…&run=…&name=…&name=…` | {@link RunMetrics}`[]` in the order of `run`; without `name`, all metrics |
 * | `GET /ui/api/compare?run=…&run=…@…&by=` | {@link RunComparison}; `by` is `scenario` (default) or `step` |
 * | `GET /ui/api/events?run=…@…&run=…@…` | server-sent events, see {@link StreamMessages} |
 * | `PATCH /ui/api/runs/{run}/notes` with {@link NotesChange} | {@link RunSummary} |
 * | `GET /ui/api/runs/{run}/steps` | {@link StepSummary}`[]`: train before eval, ascending |
 * | `GET /ui/api/runs/{run}/steps/{split}/{step}/groups?offset=&limit=` | {@link Page} of {@link GroupData}, `detail` null |
 * | `GET /ui/api/runs/{run}/steps/{split}/{step}/trajectories?…` | {@link Page} of {@link TrajectoryRow}, see `trajectoryQuery` in `routes.ts` |
 * | `GET /ui/api/runs/{run}/steps/{split}/{step}/trajectories/{line}/{index}` | {@link TrajectoryAnswer} |
 * | `GET /ui/api/runs/{run}/search?text=…&split=&step=&limit=` | {@link SearchAnswer} |
 * | `GET /ui/api/runs/{run}/compare?a=…&b=…&split=&offset=&limit=` | {@link Page} of {@link ScenarioPair} |
 * | `GET /ui/api/disk` | {@link DiskUse} |
 *
 * `offset` counts from 0 (default 0); `limit` is 1 to 500 (default 100).
 */
import type { GroupData, PageData, TrajectoryData } from "../report/page-data.ts";
import type { ColumnsData, RecordedLine, RunStatus, Split } from "../../run/data.ts";

/** Part of a list. */
export interface Page<T> {
  /** Number of items of the whole list that match the query. */
  readonly total: number;
  /** Index of the first item of this page. */
  readonly offset: number;
  readonly items: readonly T[];
}

/** Session of the browser. */
export interface BrowserSession {
  /** End of the session, ISO 8601; null for a request with an API key. */
  readonly expires: string | null;
}

/**
 * State of a run. `running`: a live process holds the lock of the directory. `ended`: the run recorded its end. `failed`: the run recorded
 * an error. `interrupted`: neither, so the process was killed or the machine stopped.
 */
export type RunStateName = Exclude<RunStatus["kind"], "unknown">;

/** Row of a run in the list of runs. */
export interface RunSummary {
  /** Identifier in the routes: 16 characters `a-z0-9`, derived from the path of the directory and therefore permanent. */
  readonly id: string;
  /** Name of the environment or of the configuration, else of the directory. */
  readonly title: string;
  /** Path of the run directory. */
  readonly path: string;
  /** Path of the directory inside its root, such as `arithmetic/rl`; the name of the directory if it is a root itself. */
  readonly name: string;
  /** Kind of training; null if the configuration has none. */
  readonly kind: "rl" | "sft" | "preference" | null;
  readonly model: string | null;
  readonly baseModel: string | null;
  readonly state: RunStateName;
  /** Reason for the end of the run as recorded, such as `completed` or `failed: …`; null if the run recorded none. */
  readonly ended: string | null;
  /** Number of steps with metrics. */
  readonly steps: number;
  /** Number of steps planned at the newest start; null if unknown. */
  readonly plannedSteps: number | null;
  /** Newest mean reward in training; null without any. */
  readonly reward: number | null;
  /** Newest mean reward in evaluation; null without any. */
  readonly evalReward: number | null;
  /** Mean rewards in training, at most 60 values evenly spaced over the steps, for a sparkline. */
  readonly rewards: readonly (number | null)[];
  /** First recorded time, ISO 8601; null without any. */
  readonly started: string | null;
  /** Last recorded time, ISO 8601; null without any. */
  readonly updated: string | null;
  /** Settings of the run by flattened name, such as `evaluation.every`, in written order; the values as text. */
  readonly config: readonly (readonly [name: string, value: string])[];
  /** Note of the user; empty without one. */
  readonly note: string;
  /** Tags of the user, without duplicates. */
  readonly tags: readonly string[];
  /** Message that names the damaged file or line of the run; null if everything read so far is intact. */
  readonly problem: string | null;
}

/** Run without its trajectories: the fields of a report page. */
export interface RunDetails extends RunSummary, Pick<PageData, "facts" | "checkpoints" | "events" | "notices"> {
  /** Metric names per split, sorted. */
  readonly metricNames: Readonly<Record<Split, readonly string[]>>;
  /** Position in the files of the run to which this answer corresponds; see {@link StreamMessages}. */
  readonly position: string;
}

/** Metrics of one run. */
export interface RunMetrics {
  readonly run: string;
  readonly metrics: Readonly<Record<Split, ColumnsData>>;
  /** Position in the files of the run to which the metrics correspond; see {@link StreamMessages}. */
  readonly position: string;
}

/**
 * Messages of `GET /ui/api/events` by event name; `data` is the JSON of the value.
 *
 * The stream starts with `runs`, and with `run` or `run-remove` for every later change of the list, so that a client that reconnects needs
 * no history. For each query parameter `run={id}@{position}`, or `run={id}` from now on, it also sends the later events after the
 * position: `rows`, then `event`. The last of them has an SSE id, which the browser sends as `Last-Event-ID` when it reconnects. Nothing is
 * lost; rows and events after the id may arrive twice.
 */
export interface StreamMessages {
  readonly runs: readonly RunSummary[];
  readonly run: RunSummary;
  readonly "run-remove": { readonly id: string };
  /** New rows of `metrics.jsonl`, in the form of {@link RunMetrics}. A step that was already known is replaced. */
  readonly rows: { readonly run: string; readonly metrics: Readonly<Record<Split, ColumnsData>> };
  /** New event of `events.jsonl`. */
  readonly event: { readonly run: string; readonly event: RecordedLine };
}

/** Step or evaluation with a file of trajectories. */
export interface StepSummary {
  readonly split: Split;
  readonly step: number;
  /** Number of trajectories as recorded in the metrics; null if the step has no metrics yet. */
  readonly trajectories: number | null;
  /** Number of groups as recorded in the metrics; null if the step has no metrics yet. */
  readonly groups: number | null;
  /** Mean reward of the step; null if the step has no metrics yet. */
  readonly reward: number | null;
}

/** Trajectory in a list. */
export interface TrajectoryRow {
  readonly split: Split;
  readonly step: number;
  /** Line of the group in the file of the step, from 1. */
  readonly line: number;
  /** Index of the trajectory in its group. */
  readonly index: number;
  /** Id of the scenario, as {@link GroupData.id}. */
  readonly scenario: string;
  readonly reward: number;
  /** `(reward − mean) / (deviation + 1e-6)` within the group; 0 where all rewards are equal. */
  readonly advantage: number;
  readonly tokens: number;
  readonly turns: number;
  /** Start of the last assistant text, max 160 characters. */
  readonly preview: string;
}

/**
 * Trajectories with the text of the query, in any case, in a message, reasoning, tool call or log line; the newest step first. `split` and
 * `step` select files; without them, all files are read.
 */
export interface SearchAnswer {
  /** At most `limit` trajectories; the preview is the text around the first match. */
  readonly items: readonly TrajectoryRow[];
  /** Whether `items` has every trajectory with the text. */
  readonly isComplete: boolean;
}

/** Trajectory with its messages, tokens and logs. */
export interface TrajectoryAnswer {
  readonly split: Split;
  readonly step: number;
  readonly line: number;
  readonly index: number;
  /** Group of the trajectory; `detail` of every trajectory is null. */
  readonly group: GroupData;
  /** The trajectory; `detail` is present. Where the run stored a token report, turns have `trained` and `advantage`. */
  readonly trajectory: TrajectoryData;
  /** Whether the run stored the trainer's log-probabilities of this step. */
  readonly hasTrained: boolean;
}

/**
 * Rollouts of the same scenario by two checkpoints: `a` and `b` of the query are steps with a file of trajectories, and `split` is `eval` by
 * default. The page reads the answers through the route of the trajectory.
 */
export interface ScenarioPair {
  readonly scenario: string;
  /** Group of step `a`, `detail` null; null if the step has no rollout of the scenario. */
  readonly a: GroupData | null;
  /** Group of step `b`, `detail` null; null if the step has no rollout of the scenario. */
  readonly b: GroupData | null;
  /** Mean reward of `b` minus mean reward of `a`; null if a side has no reward. */
  readonly difference: number | null;
}

/** Mean with a 95 % interval by bootstrap. */
export interface MeanEstimate {
  readonly mean: number;
  /** Lower end; null for a single value. */
  readonly low: number | null;
  /** Upper end; null for a single value. */
  readonly high: number | null;
  /** Number of values. */
  readonly count: number;
}

/**
 * Runs compared by paired differences to the first one. Query parameter `run` is the id of a run, which stands for its last evaluation, or
 * `{id}@{step}` for the evaluation after `step` steps.
 */
export interface RunComparison {
  /** Name of the compared metric. */
  readonly metric: string;
  /** Unit of the pairs: scenarios of an evaluation, or the training steps that all runs have reached. */
  readonly by: "scenario" | "step";
  /** Runs in the order of the query. */
  readonly runs: readonly {
    readonly run: string;
    /** Steps completed before the evaluation; null for a comparison by step. */
    readonly step: number | null;
    /** Scenarios without a value because all their rollouts failed. */
    readonly missing: number;
    /** Mean of the run; null without a value. */
    readonly estimate: MeanEstimate | null;
    /** Mean difference to the first run over the pairs; null for the first run, and without a pair. */
    readonly difference: MeanEstimate | null;
  }[];
}

/** Disk use. The routes of the service report the sizes of models and checkpoints. */
export interface DiskUse {
  /** Run directories, largest first. */
  readonly runs: readonly { readonly id: string; readonly sizeBytes: number }[];
  /** Free space of the file system of the data directory. */
  readonly freeBytes: number;
  /** Size of that file system. */
  readonly totalBytes: number;
}
