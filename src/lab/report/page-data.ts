/**
 * Data of a report page: written into the page as JSON by `writeReport` and read by the scripts in `page/`. Field names are short, because
 * each occurs many times.
 */
import type { CheckpointData, ColumnsData, NoticeData, Split } from "../../run/data.ts";

/** Tokens of a sampled turn. The arrays are parallel. */
export interface SampledData {
  /** Text completed by each token; a token that ends inside a character is shown as its bytes, `‹e2 82›`. */
  readonly texts: readonly string[];
  /** Token ids; null if absent or if their number differs from the number of log-probabilities. */
  readonly ids: readonly number[] | null;
  /** Log-probabilities of the sampler in nats; null if absent. */
  readonly logprobs: readonly number[] | null;
  /** Log-probabilities of the trainer in nats, null for a token that was not trained; null if the run stored none for this turn. */
  readonly trained: readonly (number | null)[] | null;
  /** Advantage of the turn in training; null if the run stored none. */
  readonly advantage: number | null;
  /** Advantages of the turn's tokens in training; null if all tokens had the turn's advantage. */
  readonly advantages: readonly number[] | null;
  /** Number of tokens of the prompt; null if the run did not store them. */
  readonly promptTokens: number | null;
  /** Reason for the end of the turn, such as `stop` or `length`; null if not stored. */
  readonly finish: string | null;
  /** Step of the checkpoint that sampled the turn; null if not stored. */
  readonly policy: number | null;
  /** Messages about data that cannot be shown. */
  readonly notes: readonly string[];
}

/** Message or choice of a conversation. */
export interface ItemData {
  readonly role: string;
  readonly text: string;
  /** Name of the speaker or of the tool; null if the message has none. */
  readonly name: string | null;
  readonly reasoning: string | null;
  /** Id of the call that a tool message answers; null for other messages. */
  readonly callId: string | null;
  /** Tool calls; `args` is JSON as the model wrote it. */
  readonly calls: readonly { readonly id: string | null; readonly name: string; readonly args: string }[];
  /** Tokens of a sampled turn; null for context. */
  readonly sampled: SampledData | null;
}

/** Metrics or metadata by name. */
export type Scalars = Readonly<Record<string, number | string | boolean | null>>;

/** Contents of a trajectory, shown when it is opened. */
export interface DetailData {
  /** Time of the start, ISO 8601; null if not stored. */
  readonly start: string | null;
  /** Steps of the checkpoints that sampled the first and the last turn; null if not stored. */
  readonly policies: readonly [first: number | null, last: number | null];
  readonly metrics: Scalars;
  readonly metadata: Scalars;
  readonly logs: readonly string[];
  readonly tools: readonly { readonly name: string; readonly description: string }[];
  /** The main conversation, then the additional histories. */
  readonly histories: readonly (readonly ItemData[])[];
}

/** Trajectory of a group. */
export interface TrajectoryData {
  readonly reward: number;
  /** `(reward − mean) / (deviation + 1e-6)` within the group; 0 where all rewards are equal. */
  readonly advantage: number;
  /** Number of sampled tokens over all turns. */
  readonly tokens: number;
  /** Number of sampled turns. */
  readonly turns: number;
  /** Contents; null if omitted to limit the size of the page. */
  readonly detail: DetailData | null;
}

/** Group of trajectories: one line of a file in `trajectories/`. */
export interface GroupData {
  /** Line number in the file, from 1. */
  readonly line: number;
  /** Id of the scenario, else its index, else the line number from 0. */
  readonly id: string;
  /** Mean reward; null without trajectories. */
  readonly mean: number | null;
  /** Standard deviation of the rewards; null without trajectories. */
  readonly deviation: number | null;
  /** Whether training learns from the group: its rewards differ, or its turns have token advantages other than 0. */
  readonly isTrainable: boolean;
  /** Whether the filters of the run discarded the group before training. */
  readonly isDiscarded: boolean;
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
  /** Reason for the selection of this step. */
  readonly reason: "first" | "last" | "best" | "spaced";
  /** Path of the trajectory file inside the run directory. */
  readonly file: string;
  /** Whether the run stored the trainer's log-probabilities of this step. */
  readonly hasTrained: boolean;
  /** Number of trajectories with omitted contents. */
  readonly omitted: number;
  readonly groups: readonly GroupData[];
}

/** All data of a page. */
export interface PageData {
  readonly title: string;
  /** Time of writing the page, ISO 8601. */
  readonly written: string;
  /** Summary of the run: model, steps, times, checkpoints. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  /** Settings of the run by flattened name, such as `evaluation.every`. */
  readonly config: readonly (readonly [name: string, value: string])[];
  readonly metrics: Readonly<Record<Split, ColumnsData>>;
  readonly checkpoints: readonly CheckpointData[];
  /** Number of recorded events by type. */
  readonly events: readonly (readonly [type: string, count: number])[];
  /** Warnings and failures, newest first; max 100. */
  readonly notices: readonly NoticeData[];
  readonly steps: readonly StepData[];
  /** Number of steps with a trajectory file, whether embedded or not. */
  readonly available: Readonly<Record<Split, number>>;
}
