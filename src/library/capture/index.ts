/** Recording of agents written with any client, as trajectories. */
export { capture, type Capture, type CaptureOptions, type CaptureResult } from "./capture.ts";
export type { Fetch } from "./fetch.ts";
export type { CapturedPolicy } from "./scope.ts";
export type { AgentProcess, EndedProcess } from "./process.ts";
export type { SessionRolloutOptions } from "./session.ts";
export { captureAll, type PassiveCapture } from "./passive.ts";
