/** Validation of the options of `gatherTrajectoryGroups` and `streamTrajectoryGroups`, and of those that training runs pass on to them. */
import { checkInteger, refuse } from "../../base/util/values.ts";
import { checkProgress } from "../../base/progress/index.ts";
import type { GatherOptions } from "./options.ts";

/** Largest delay that Node's timers accept, in milliseconds. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Checks the options before anything runs. @throws ArgumentError `E_ARGUMENT` for an option out of range. */
export function checkGatherOptions(options: GatherOptions, scenarios: number): void {
  checkOptionalInteger("groupSize", options.groupSize, 1);
  checkOptionalInteger("concurrency", options.concurrency, 1);
  if (options.concurrencyBy !== undefined) checkInteger("concurrencyBy.limit", options.concurrencyBy.limit, 1);
  checkOptionalInteger("seed", options.seed, Number.MIN_SAFE_INTEGER);
  checkOptionalInteger("replacements", options.replacements, 0);
  const { retries } = options;
  if (typeof retries === "object") checkOptionalInteger("retries.limit", retries.limit, 0);
  else checkOptionalInteger("retries", retries, 0);
  checkAttemptOptions(options);
  checkIndices(options.indices, scenarios);
  checkProgress(options.progress);
}

/** Options that a training run checks when it is created, before its first rollouts. */
type AttemptOptions = Pick<GatherOptions, "timeoutMs" | "maxExceptions" | "temperature" | "chatTemplateKwargs">;

/** Checks timeout, allowed failures and sampling of rollouts. @throws ArgumentError `E_ARGUMENT` for an option out of range. */
export function checkAttemptOptions({ timeoutMs, maxExceptions, temperature, chatTemplateKwargs: kwargs }: AttemptOptions): void {
  if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs <= MAX_TIMER_MS))
    refuse("timeoutMs", "above 0 and at most 2147483647", timeoutMs);
  if (maxExceptions !== undefined && !(maxExceptions >= 0 && (maxExceptions < 1 || Number.isInteger(maxExceptions))))
    refuse("maxExceptions", "a count, or a fraction below 1", maxExceptions);
  if (temperature !== undefined && !(temperature >= 0 && temperature < Infinity))
    refuse("temperature", "a finite number of at least 0", temperature);
  if (kwargs !== undefined && (typeof kwargs !== "object" || kwargs === null || Array.isArray(kwargs)))
    refuse("chatTemplateKwargs", "an object of template variables by name", kwargs);
}

/** Checks that all indices differ: scenarios with the same index would use the same seeds, and their groups could not be distinguished. */
function checkIndices(indices: readonly number[] | undefined, scenarios: number): void {
  if (indices === undefined) return;
  if (indices.length !== scenarios) refuse("indices", `one index per scenario (${scenarios})`, `${indices.length} of them`);
  const invalid = indices.find((index) => !(Number.isSafeInteger(index) && index >= 0));
  if (invalid !== undefined) refuse("indices", "integers of at least 0", invalid);
  const seen = new Set<number>();
  for (const index of indices) {
    if (seen.has(index)) refuse("indices", "all different", `${index} twice`);
    seen.add(index);
  }
}

/** Checks an option unless it is absent. */
function checkOptionalInteger(param: string, value: number | undefined, min: number): void {
  if (value !== undefined) checkInteger(param, value, min);
}
