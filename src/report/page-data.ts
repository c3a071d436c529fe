/** What a report page holds: written as JSON into it by `writeReport`, read by the scripts in `page/`. Short names: there are many of them. */

/** Which rollouts: those trained on, or those of an evaluation. */
export type Split = "train" | "eval";

/** One sampled turn, token by token. The arrays are parallel. */
export interface SampledData {
  /** Text that each token completes; a token that ends inside a character has its bytes as `‹e2 82›`. */
  readonly texts: readonly string[];
  /** Null where the turn has no ids, or not as many as log-probabilities. */
  readonly ids: readonly number[] | null;
  /** Of the sampler, in nats. Null where the turn has none. */
  readonly logprobs: readonly number[] | null;
  /** Of the trainer, in nats. Null where the run kept none for this turn. */
  readonly trained: readonly number[] | null;
  /** The trainer's advantage of the turn; null where the run kept none. */
  readonly advantage: number | null;
  readonly promptTokens: number | null;
  readonly finish: string | null;
  /** Step of the checkpoint that sampled it. */
  readonly policy: number | null;
  /** What could not be shown, in words. */
  readonly notes: readonly string[];
}

/** One item of a conversation. */
export interface ItemData {
  readonly role: string;
  readonly text: string;
  readonly name: string | null;
  readonly reasoning: string | null;
  readonly callId: string | null;
  readonly calls: readonly { readonly id: string | null; readonly name: string; readonly args: string }[];
  /** Null for context. */
  readonly sampled: SampledData | null;
}

type Scalars = Readonly<Record<string, number | string | boolean | null>>;

/** What is read when a trajectory is opened. */
export interface DetailData {
  readonly start: string | null;
  readonly policies: readonly [number | null, number | null];
  readonly metrics: Scalars;
  readonly metadata: Scalars;
  readonly logs: readonly string[];
  readonly tools: readonly { readonly name: string; readonly description: string }[];
  /** The main conversation, then the additional histories. */
  readonly histories: readonly (readonly ItemData[])[];
}

/** One trajectory of a group. */
export interface TrajectoryData {
  readonly reward: number;
  /** `(reward − mean) / (deviation + 1e-6)` within the group; 0 where all rewards are equal. */
  readonly advantage: number;
  readonly tokens: number;
  readonly turns: number;
  /** Null where it was left out to keep the page small. */
  readonly detail: DetailData | null;
}

/** One group: a line of a file of `trajectories/`. */
export interface GroupData {
  /** From 1, in the file. */
  readonly line: number;
  readonly id: string;
  readonly mean: number | null;
  readonly deviation: number | null;
  readonly isTrainable: boolean;
  readonly metadata: Scalars;
  readonly metrics: Scalars;
  readonly logs: readonly string[];
  readonly exceptions: readonly { readonly type: string; readonly message: string; readonly traceback: string }[];
  readonly trajectories: readonly TrajectoryData[];
}

/** The groups of one step. */
export interface StepData {
  readonly split: Split;
  readonly step: number;
  /** Why this step was chosen. */
  readonly reason: "first" | "last" | "best" | "spaced";
  /** Inside the run directory. */
  readonly file: string;
  /** Whether the run kept the trainer's log-probabilities of this step. */
  readonly hasTrained: boolean;
  /** Trajectories whose content was left out. */
  readonly omitted: number;
  readonly groups: readonly GroupData[];
}

/** Metrics of one split, as columns; null where a step has no such number. */
export interface ColumnsData {
  readonly steps: readonly number[];
  readonly columns: Readonly<Record<string, readonly (number | null)[]>>;
}

/** A checkpoint and what became of it. */
export interface CheckpointData {
  readonly step: number;
  /** Empty where the run did not keep it. */
  readonly id: string;
  /** The run's step that made it; null where the run did not keep it. */
  readonly runStep: number | null;
  readonly time: string;
  readonly state: "kept" | "pinned" | "deleted";
  readonly metrics: Readonly<Record<string, number>>;
}

/** A warning or a failure that the run recorded. */
export interface NoticeData {
  readonly type: string;
  readonly step: number | null;
  readonly message: string;
}

/** Everything in a page. */
export interface PageData {
  readonly title: string;
  /** When the page was written, ISO 8601. */
  readonly written: string;
  readonly facts: readonly (readonly [name: string, value: string])[];
  readonly config: readonly (readonly [name: string, value: string])[];
  readonly metrics: Readonly<Record<Split, ColumnsData>>;
  readonly checkpoints: readonly CheckpointData[];
  readonly events: readonly (readonly [type: string, count: number])[];
  /** Warnings and failures, newest first; not more than a hundred. */
  readonly notices: readonly NoticeData[];
  readonly steps: readonly StepData[];
  /** Steps with a file of trajectories, embedded or not. */
  readonly available: Readonly<Record<Split, number>>;
}
