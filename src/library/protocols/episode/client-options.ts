/** Options that the clients of both environment protocols share. */
import type { RunAgentOptions } from "../../rollout/agent/index.ts";

/** Sampling settings and maximum number of turns of an environment's agent. The environment sets the other options of `runAgent`. */
export type EnvironmentAgentOptions = Omit<RunAgentOptions, "tools" | "signal" | "isDone">;

/** Address of an environment server, and the settings of connections to it. */
export interface EnvironmentServerOptions {
  /** Address of the server, http or https, without a slash at the end. */
  readonly baseUrl: string;
  /** Additional headers of each request or handshake. */
  readonly headers: Readonly<Record<string, string>>;
  /** Timeout of a connection, and of each request with its response, in milliseconds. */
  readonly timeoutMs: number;
  /** Aborts the connection and its requests. */
  readonly signal: AbortSignal;
}
