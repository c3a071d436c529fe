import type { RunAgentOptions } from "../../rollout/agent/index.ts";

/** Sampling settings and maximum number of turns of an environment's agent; tools, signal and end come from the environment. */
export type EnvironmentAgentOptions = Omit<RunAgentOptions, "tools" | "signal" | "isDone">;

/** Server of environments, and the settings of its connections. */
export interface EnvironmentServerOptions {
  /** Address of the server, http or https, without a slash at the end. */
  readonly baseUrl: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Timeout of a connection, and of each request with its response, in milliseconds. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}
