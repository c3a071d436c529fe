import type { RunAgentOptions } from "../../rollout/agent/index.ts";

/** Sampling settings and maximum number of turns of an environment's agent; tools, signal and end come from the environment. */
export type EnvironmentAgentOptions = Omit<RunAgentOptions, "tools" | "signal" | "isDone">;
