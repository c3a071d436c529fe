/** Rollout of an agent that is a program: `capture.session` records its requests, `capture/process.ts` runs the program. */
import { type AgentProcess, capture, type EndedProcess } from "../capture/index.ts";
import { agentLogs, runAgentProcess } from "../capture/process.ts";
import type { CreateSessionOptions, Service } from "../client/index.ts";
import type { RolloutContext } from "../rollout/index.ts";
import type { Trajectory } from "../../base/trajectory/index.ts";

/** Options of {@link processRollout}. Options given as functions are called with the scenario. */
export interface ProcessRolloutOptions<S>
  extends
    Omit<AgentProcess, "command" | "env" | "input">,
    Pick<CreateSessionOptions, "samplingDefaults" | "samplingOverrides" | "maxRequests" | "maxTokens" | "maxSeconds" | "expiresInSeconds"> {
  /** Service that records the sessions; the key of each session reaches only its own process. */
  readonly service: Pick<Service, "sessions">;
  /** Program and its arguments; no shell is involved. */
  readonly command: readonly string[] | ((scenario: S) => readonly string[]);
  /**
   * Variables added to the environment of this process, the variables of the session, and `WHETSTONE_SCENARIO`, the scenario as JSON.
   *
   * @default none
   */
  readonly env?: Readonly<Record<string, string | undefined>> | ((scenario: S) => Readonly<Record<string, string | undefined>>) | undefined;
  /** Text for standard input, which is closed after it. @default none */
  readonly input?: string | ((scenario: S) => string) | undefined;
  /** Time limit of the process, in milliseconds; the rollout's own limit applies too. @default none */
  readonly timeoutMs?: number | undefined;
}

/**
 * Returns a rollout that starts a program for each rollout and records its requests. The program finds the endpoint and its key in the
 * variables that clients of OpenAI and Anthropic read (`OPENAI_BASE_URL`, `OPENAI_API_KEY`, `ANTHROPIC_BASE_URL`, `ANTHROPIC_API_KEY` …);
 * every request becomes part of the trajectory. When the program ends, or at a timeout or an abort, its whole process tree is ended. The
 * ends of its outputs, without keys, become logs of the trajectory, and its exit code the metric `exit_code`.
 *
 * @param options - Service, program and source of the reward.
 * @returns a rollout that rejects with AgentProcessError `E_AGENT_PROCESS` if the program does not start or leaves no reward.
 * @example
 * ```ts
 * import { connect } from "whetstone";
 * import { defineEnvironment, processRollout } from "whetstone/environment";
 *
 * const service = await connect();
 * const environment = defineEnvironment({
 *   name: "fix-a-bug",
 *   scenarios: { train: [{ id: "one", task: "…" }], eval: [] },
 *   rollout: processRollout({ service, command: ["python3", "agent.py"], reward: "file", timeoutMs: 300_000 }),
 * });
 * ```
 */
export function processRollout<S>(options: ProcessRolloutOptions<S>): (scenario: S, context: RolloutContext) => Promise<Trajectory> {
  const { service, command, env, input, cwd, reward, maxOutput, timeoutMs, ...session } = options;
  return async (scenario, { policy, sampling: { temperature, seed, chatTemplateKwargs }, signal }) => {
    /** Returns the value of an option that may be a function of the scenario. */
    const valueFor = <T>(value: T | ((scenario: S) => T)): T =>
      typeof value === "function" ? (value as (scenario: S) => T)(scenario) : value;
    let ended: EndedProcess | undefined;
    const recorded = await capture.session(service, {
      ...session,
      model: policy.id,
      samplingDefaults: { temperature, seed, chatTemplateKwargs, ...session.samplingDefaults },
      signal,
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      run: async (opened, { signal: stop }) => {
        const variables = { WHETSTONE_SCENARIO: JSON.stringify(scenario), ...valueFor(env) };
        const agent = { command: valueFor(command), env: variables, cwd, input: valueFor(input), reward, maxOutput };
        const result = await runAgentProcess(agent, opened, { signal: stop });
        ({ ended } = result);
        return result.score;
      },
    });
    // `capture.session` resolves only after `run`, which sets `ended`.
    return recorded.with(agentLogs(ended!));
  };
}
