/** Decides which waiting prompts may be started while others are being prefilled. */
import { isScored } from "./admission.ts";
import type { PrefillTask } from "./prefill.ts";
import { priorityOf, type Request } from "./request.ts";
import { first } from "../../../base/util/values.ts";

/**
 * Max long prompts of one priority being prefilled at one time, which take turns; more wait. Each holds memory for all its keys. Shorter prompts
 * are started at their turn.
 */
const MAX_LONG_TASKS = 4;
/** Min tokens of a long prompt. */
const LONG_TOKENS = 1024;

/**
 * Whether a waiting prompt may be started: unless it is long and four long prompts are being prefilled, or a prompt being prefilled will soon add
 * the blocks to the prefix cache that it begins with.
 *
 * @param minSharedPrefix - Min length of such a prefix in tokens; null without a prefix cache.
 */
export function mayStart(request: Request, tasks: readonly PrefillTask[], minSharedPrefix: number | null): boolean {
  const { length } = request.prompt;
  if (minSharedPrefix !== null && !isScored(request) && tasks.some((task) => task.willStore(request, minSharedPrefix))) return false;
  const isAhead = ({ tokens, requests }: PrefillTask) => tokens > LONG_TOKENS && priorityOf(first(requests)) <= priorityOf(request);
  return length <= LONG_TOKENS || tasks.filter(isAhead).length < MAX_LONG_TASKS;
}
