/** Progress of a run of rollouts on standard error, see `base/progress`. */
import type { RolloutException } from "../../base/schema/index.ts";
import { bar, duration, grouped, rate, startProgress, WarningCounts, type ProgressTask } from "../../base/progress/index.ts";
import type { GatherOptions, GatherProgress } from "./options.ts";

/** Progress display of a run of rollouts. */
export class RolloutDisplay {
  readonly #title: string;
  readonly #startedMs = performance.now();
  readonly #warnings = new WarningCounts();
  readonly #task: ProgressTask;
  #progress: GatherProgress;

  constructor(title: string, total: number, option: GatherOptions["progress"]) {
    this.#title = title;
    this.#progress = { completed: 0, total, running: 0, exceptions: 0, rewardMean: Number.NaN, completionTokens: 0 };
    this.#task = startProgress(option, { block: () => this.#block(), line: () => this.#line() });
  }

  /** Shows a new state. */
  update(progress: GatherProgress): void {
    this.#progress = progress;
    this.#task.refresh();
  }

  /** Shows the failure of a rollout. Only the first one of a type is printed with its message; later ones are counted. */
  warn({ type, message }: RolloutException): void {
    if (this.#warnings.add(type)) this.#task.print(`${this.#title}: rollout failed with ${type}: ${message}`);
  }

  /** Ends the display with the final state. @param failure - Reason for an early end; absent if all rollouts have ended. */
  end(failure?: "stopped" | "ended by an error"): void {
    const warnings = this.#warnings.summary();
    const failures = warnings === null ? "" : `; failures: ${warnings}`;
    const ending = failure === undefined ? "" : `, ${failure}`;
    this.#task.end(`${this.#line()}, ${duration(this.#seconds())}${failures}${ending}`);
  }

  /** Lines of the display on a terminal. */
  #block(): string[] {
    const { completed, total } = this.#progress;
    const fraction = total === 0 ? 1 : completed / total;
    const seconds = this.#seconds();
    const remainingSeconds = (seconds * (total - completed)) / completed;
    const estimate = completed > 0 && completed < total ? `, ${duration(remainingSeconds)} left` : "";
    const head = `${this.#title}  ${bar(fraction)} ${Math.floor(fraction * 100)} %${estimate}`;
    const warnings = this.#warnings.summary();
    return [head, `  ${this.#state()}`, ...(warnings === null ? [] : [`  failures: ${warnings}`])];
  }

  /** Line of the display elsewhere. */
  #line(): string {
    return `${this.#title}: ${this.#state()}`;
  }

  /** Counts, reward and speed as text. */
  #state(): string {
    return rolloutState(this.#progress, this.#seconds());
  }

  /** Seconds since the start. */
  #seconds(): number {
    return (performance.now() - this.#startedMs) / 1000;
  }
}

/** Formats rollouts in progress: `96/128 rollouts, 32 running, 1 failed, reward 0.563, 4,120 tokens/s`. */
export function rolloutState(progress: GatherProgress, seconds: number): string {
  const { completed, total, running, exceptions, rewardMean, completionTokens } = progress;
  const parts = [
    `${grouped(completed)}/${grouped(total)} rollouts`,
    running > 0 ? `${grouped(running)} running` : null,
    exceptions > 0 ? `${grouped(exceptions)} failed` : null,
    Number.isFinite(rewardMean) ? `reward ${rewardMean.toFixed(3)}` : null,
    rate(completionTokens, seconds),
  ];
  return parts.filter((part) => part !== null).join(", ");
}
