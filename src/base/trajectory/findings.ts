/** Problems that preflight finds in a batch: their codes, severities and messages, and the collector of their occurrences. */

import { WhetstoneError } from "../errors.ts";
import { getOrInsert } from "../util/values.ts";
import { TOKEN_VALUE_PROBLEMS, type TokenValueProblem } from "./token-values.ts";
import { NO_SAMPLED_TURN, TURN_PROBLEMS, type TurnProblem } from "./turn.ts";

/** Codes of the problems that preflight reports. */
export type FindingCode =
  | "no-groups"
  | "empty-group"
  | "group-of-one"
  | "unbalanced-group"
  | "constant-group"
  | "nothing-to-learn"
  | "no-logprobs"
  | TurnProblem
  | TokenValueProblem
  | "non-finite-reward"
  | "rendered-choice"
  | "duplicate-trajectory"
  | "separate-turns"
  | "unused-template-kwargs"
  | "overlong-row"
  | "only-overlong-rows"
  | "only-truncated"
  | "stale-group"
  | "payload-too-large"
  | "temperature"
  | "truncated-sampling"
  | "biased-sampling"
  | "grammar-mask";

/** Problem found in a batch, with its occurrences. */
export interface Finding {
  /** Code of the problem. */
  readonly code: FindingCode;
  /** Severity. `fatal`: the batch is rejected. `warning`: the batch can be trained, but perhaps not as intended. */
  readonly severity: "fatal" | "warning";
  /** Number of occurrences. */
  readonly count: number;
  /** Paths of the first occurrences (at most 5), e.g. `trajectory_groups.3.trajectories.1`. */
  readonly examples: readonly string[];
  /** Description of the problem and how to fix it. */
  readonly message: string;
}

/**
 * Error for a batch that has nothing to train or contains invalid data. Thrown before any request is sent; the service rejects the batch
 * with the same error.
 *
 * @example
 * ```ts
 * try {
 *   await model.train(groups);
 * } catch (error) {
 *   if (error instanceof PreflightError) console.log(error.findings.map(({ code, count }) => `${code}: ${count}`));
 * }
 * ```
 */
export class PreflightError extends WhetstoneError {
  readonly code = "E_PREFLIGHT";
  /** All findings, warnings included; fatal ones first. */
  readonly findings: readonly Finding[];

  /**
   * Created by preflight.
   *
   * @internal
   */
  constructor(findings: readonly Finding[]) {
    const fatal = findings.filter((finding) => finding.severity === "fatal");
    super(`The batch cannot be trained: ${fatal.map((finding) => `${finding.message} (${pathsText(finding)})`).join(" ")}`, {
      param: "trajectory_groups",
    });
    this.findings = findings;
  }

  /** Returns code, message and findings; safe for files and HTTP responses. */
  override toJSON(): ReturnType<WhetstoneError["toJSON"]> & Pick<PreflightError, "findings"> {
    return { ...super.toJSON(), findings: this.findings };
  }
}

/** Max paths that a finding lists. */
const MAX_EXAMPLES = 5;

/** Consequence of sampling from another distribution than the plain softmax, a part of several messages. */
const NOT_PLAIN = "their log-probabilities are not those of the distribution they came from.";

/** Messages of the problems for which a batch is rejected, in report order. */
const FATAL = {
  "no-groups": "There is no trajectory in the batch. Send at least one group of two finished trajectories.",
  "non-finite-reward": "A reward is not a finite number. Make the reward function return one.",
  ...TURN_PROBLEMS,
  ...TOKEN_VALUE_PROBLEMS,
  "no-logprobs": NO_SAMPLED_TURN,
  "nothing-to-learn":
    "No group has two different rewards or a token advantage other than 0, so every advantage is zero. Use a finer reward, a larger group, a temperature of 1, or easier scenarios.",
  "only-overlong-rows":
    "Every row that could teach anything is longer than `maxTokens`. Sample fewer tokens, compact the conversation, or train a model with a longer context.",
  "only-truncated":
    "Every trajectory of the groups that could teach anything has a turn that ended at the token limit, and `mask_truncated` excludes it. Allow longer turns, or leave `mask_truncated` out.",
  "payload-too-large":
    "The groups are larger than `maxBytes` as JSON. Train on fewer groups at once, or ask for fewer `top_logprobs` while sampling.",
};

/** Messages of the problems that a batch can be trained with, in report order. */
const WARNINGS = {
  "constant-group": "All rewards of a group are equal, or all its token advantages are 0; it adds nothing to the gradient.",
  "group-of-one": "A group has a single trajectory: there is nothing to compare it with, so it adds nothing to the gradient.",
  "empty-group": "A group has no trajectory (did all its rollouts fail?).",
  "unbalanced-group":
    "Groups have different sizes: each trajectory weighs the same, so a larger group counts more and a smaller one has a noisier mean. Retry rollouts that fail, or leave incomplete groups out.",
  "rendered-choice":
    "A choice has no token ids: it is rendered through the chat template, and its prompt may have other tokens than were sampled from. Request `return_token_ids: true` and append the whole choice.",
  "duplicate-trajectory":
    "Trajectories of one group are the same, token for token. A few are normal late in training; many mean too little exploration, or one appended twice.",
  "separate-turns":
    "No turn of a trajectory continues the tokens of another, so each is trained as a row of its own with the whole prompt. Usually the chat template drops earlier reasoning or rewrites earlier turns: keep the reasoning with the variable of the template in `chat_template_kwargs`, if it has one (`preserve_thinking: true` for Qwen 3.6, `clear_thinking: false` for GLM 5.1), or let the agent send earlier turns unchanged.",
  "unused-template-kwargs":
    "Turns were sampled with variables in `chat_template_kwargs` that the chat template does not read: they have no effect. Correct their names, leave them out, or use a template that reads them; `unused_template_kwargs` of the choice lists them.",
  "overlong-row":
    "Rows are longer than `maxTokens`; the trainer leaves them out. Sample fewer tokens, compact the conversation, or train a model with a longer context.",
  "stale-group":
    "Groups were sampled more than `maxStepsOffPolicy` steps before `currentStep`: they say little about the present policy. Leave them out, or sample them again.",
  temperature: `Turns were sampled at a temperature other than 1: ${NOT_PLAIN} Use temperature 1 for training rollouts.`,
  "truncated-sampling": `Turns were sampled with \`top_p\`, \`top_k\` or \`min_p\`: ${NOT_PLAIN} Leave them off for training rollouts.`,
  "biased-sampling": `Turns were sampled with a penalty, a bias or tokens forbidden: ${NOT_PLAIN} Leave them off for training rollouts.`,
  "grammar-mask":
    "Turns were sampled under a grammar (`structured_outputs`, `response_format`, or a `tool_choice` that forces a call): their log-probabilities are those of the allowed tokens alone, the trainer's those of all. Reward the format instead of forcing it.",
};

/** Message per code, in report order: fatal problems first. */
export const MESSAGES: Readonly<Record<FindingCode, string>> = { ...FATAL, ...WARNINGS };

/** Returns the severity of a problem. */
export function severityOf(code: FindingCode): Finding["severity"] {
  return code in FATAL ? "fatal" : "warning";
}

/** Collector of findings: counts the occurrences of each code and keeps the first paths. */
export class Findings {
  readonly #byCode = new Map<FindingCode, { count: number; examples: string[] }>();

  /** Adds one occurrence of a problem. */
  add(code: FindingCode, path: string): void {
    const occurrences = getOrInsert(this.#byCode, code, () => ({ count: 0, examples: [] }));
    occurrences.count++;
    if (occurrences.examples.length < MAX_EXAMPLES) occurrences.examples.push(path);
  }

  /** Returns the findings in the order of {@link MESSAGES}. */
  list(): Finding[] {
    return (Object.keys(MESSAGES) as FindingCode[]).flatMap((code) => {
      const occurrences = this.#byCode.get(code);
      return occurrences === undefined ? [] : [{ code, severity: severityOf(code), ...occurrences, message: MESSAGES[code] }];
    });
  }
}

/** Returns the findings if all of them are warnings. @throws {@link PreflightError} `E_PREFLIGHT` when a finding is fatal. */
export function refuseFatal(findings: Finding[]): Finding[] {
  if (findings.some((finding) => finding.severity === "fatal")) throw new PreflightError(findings);
  return findings;
}

/** Returns the paths of a finding as text, e.g. `at trajectory_groups.3, and 4 more`. */
function pathsText({ count, examples }: Finding): string {
  const more = count > examples.length ? `, and ${count - examples.length} more` : "";
  return `at ${examples.join(", ")}${more}`;
}
