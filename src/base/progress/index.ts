/** Progress display of long calls: a block at the bottom of a terminal, or plain lines. */
export { bar, duration, grouped, rate } from "./format.ts";
export { checkProgress, startProgress, type ProgressTask, type ProgressView } from "./task.ts";
export { WarningCounts } from "./warnings.ts";
