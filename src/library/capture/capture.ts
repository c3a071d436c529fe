/** Public interface of capturing: a fetch for the client, and a scope for the rollout. */
import { ArgumentError } from "../../base/errors.ts";
import { refuse } from "../../base/util/values.ts";
import { driftLine, toHistories, toHistoryMembers, type RecordedCall } from "../../base/trajectory/histories.ts";
import { Trajectory, trajectory, type Scalar } from "../../base/trajectory/index.ts";
import type { Service } from "../client/index.ts";
import { recordedCalls } from "./calls.ts";
import { captureFetch, type Fetch } from "./fetch.ts";
import { sessionTrajectory, type SessionRolloutOptions } from "./session.ts";
import { CaptureScope, scopes, type ScopeOptions } from "./scope.ts";

/** Result of a captured rollout. */
export interface CaptureResult {
  /** Reward of the rollout, finite. */
  readonly reward: number;
  /** Metrics of the rollout, finite numbers or booleans. @default {} */
  readonly metrics?: Readonly<Record<string, number | boolean>> | undefined;
  /** Metadata of the rollout, e.g. its task. @default {} */
  readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
}

/** Selection of the calls that `capture.trajectory` records, and limits of the recording. */
export interface CaptureOptions extends ScopeOptions {
  /** Maximum time in milliseconds to wait for pending responses after `run` has ended. At least 0. @default 30000 */
  readonly settleTimeoutMs?: number | undefined;
}

/**
 * Recording of agents that are unaware of it.
 *
 * @example
 * ```ts
 * import { capture } from "whetstone/capture";
 * import OpenAI from "openai";
 *
 * const client = new OpenAI({ baseURL: service.inferenceUrl, apiKey: service.apiKey, fetch: capture.fetch });
 * const recorded = await capture.trajectory(
 *   async () => {
 *     const answer = await client.chat.completions.create({ model: policy.id, messages: [{ role: "user", content: "Reverse: abc" }] });
 *     return { reward: answer.choices[0]?.message.content === "cba" ? 1 : 0 };
 *   },
 *   { policy },
 * );
 * // Over a fetch that adds a header to every request:
 * const tagged = capture.wrap((input, init) => globalThis.fetch(input, { ...init, headers: { ...init?.headers, "x-run": "7" } }));
 * ```
 */
export interface Capture {
  /**
   * WHATWG `fetch` for any client that accepts one. In a scope it adds the fields that request token ids and log-probabilities (`logprobs`
   * and `return_token_ids`) to the calls to the policy and records them; the agent receives every response as it arrives. Outside a scope it
   * is `globalThis.fetch`.
   */
  readonly fetch: Fetch;
  /**
   * Returns {@link Capture.fetch} on top of another fetch, e.g. one with a proxy.
   *
   * @param baseFetch - Fetch that sends the requests.
   * @returns Recording fetch.
   */
  wrap(baseFetch: Fetch): Fetch;
  /**
   * Runs one rollout and returns its trajectory: every call to the policy made by `run` or by asynchronous work that `run` starts.
   *
   * Requests of Chat Completions, Responses, Messages, text completions and `/inference/v1/generate` are recorded if their `model` is
   * `policy.id`, or without a policy any `entity/project/name`. All become chat messages, so the trajectory does not depend on the API.
   * Calls to other models, failed attempts and truncated responses are not recorded as turns. Scopes are independent: an inner scope keeps
   * its own calls.
   *
   * @param run - Function that runs the agent and returns the reward.
   * @param options - Calls to record, a signal and a timeout.
   * @returns The finished trajectory.
   * @throws ArgumentError `E_ARGUMENT` when no call was recorded, or the reward or a metric is not finite.
   * @throws the signal's reason when it has aborted, else any error of `run`.
   */
  trajectory(run: () => CaptureResult | Promise<CaptureResult>, options?: CaptureOptions): Promise<Trajectory>;
  /**
   * Runs one rollout of an agent in any process or language, and returns its trajectory: creates a session, passes its key and base URLs to
   * `run`, waits for the end, and deletes the session.
   *
   * @param service - Connection to the service that samples the policy.
   * @param options - Model, sampling fields and limits of the session, and the function that starts the agent.
   * @returns The finished trajectory with the reward of the agent, or of `run`.
   * @throws ArgumentError `E_ARGUMENT` if the session ends without a reward.
   * @throws HttpError `E_HTTP` or ConnectionError `E_CONNECTION` of the service; the signal's reason, a `TimeoutError`, or any error of `run`.
   * @example
   * ```ts
   * import { spawn } from "node:child_process";
   *
   * const finished = await capture.session(service, {
   *   model: policy.id,
   *   samplingDefaults: { temperature: 1 },
   *   maxSeconds: 120,
   *   run: (session) => {
   *     const env = { ...process.env, OPENAI_BASE_URL: session.urls.openai, OPENAI_API_KEY: session.key, SESSION_URL: session.urls.session };
   *     spawn("python3", ["agent.py"], { env });
   *   },
   * });
   * ```
   */
  session(service: Pick<Service, "sessions">, options: SessionRolloutOptions): Promise<Trajectory>;
}

/** Recording of agents that are unaware of it: give `capture.fetch` to the agent's client and run the agent in `capture.trajectory`. */
export const capture: Capture = { fetch: captureFetch(), wrap: captureFetch, trajectory: captureTrajectory, session: sessionTrajectory };

/** Default of `settleTimeoutMs`. */
const SETTLE_TIMEOUT_MS = 30_000;
/** Exclusive upper bound of the delays that Node's timers accept, in milliseconds. */
const TIMER_LIMIT_MS = 2 ** 31;

/** Implements `Capture.trajectory`. */
async function captureTrajectory(
  run: () => CaptureResult | Promise<CaptureResult>,
  { settleTimeoutMs = SETTLE_TIMEOUT_MS, ...options }: CaptureOptions = {},
): Promise<Trajectory> {
  if (!(settleTimeoutMs >= 0 && settleTimeoutMs < TIMER_LIMIT_MS))
    refuse("settleTimeoutMs", "at least 0 and below 2147483648", settleTimeoutMs);
  const { signal } = options;
  signal?.throwIfAborted();
  const scope = new CaptureScope(options);
  // Created before the run, because its creation starts the trajectory's clock.
  const builder = trajectory({ messages: [] });
  try {
    const result = await scopes.run(scope, async () => run());
    await scope.settle(settleTimeoutMs);
    return toTrajectory(scope, builder, await recordedCalls(scope), checkedResult(result));
  } catch (error) {
    // Clients throw errors of their own for an abort.
    signal?.throwIfAborted();
    throw error;
  } finally {
    scope.close();
  }
}

/** Returns the result of the captured function. @throws ArgumentError `E_ARGUMENT` if it is not an object. */
function checkedResult(result: CaptureResult): CaptureResult {
  if (typeof result === "object" && result !== null) return result;
  throw new ArgumentError(`Expected the captured function to return \`{ reward }\`, got \`${String(result)}\``, { param: "run" });
}

/** Finishes the trajectory: the first history becomes the main conversation, the others its additional histories. */
function toTrajectory(
  scope: CaptureScope,
  builder: ReturnType<typeof trajectory>,
  calls: readonly RecordedCall[],
  result: CaptureResult,
): Trajectory {
  const { logs, policy } = scope;
  const { histories, drifted } = toHistories(calls, policy?.step ?? null);
  const [main] = histories;
  if (main === undefined) throw nothingCapturedError(scope);
  for (const item of main.items) builder.add(item);
  for (const line of logs) builder.log(line);
  for (const call of drifted) builder.log(driftLine(call));
  Object.assign(builder.metadata, result.metadata);
  const { reward, metrics } = result;
  const wire = builder.finish({ reward, metrics }).toJSON();
  return Trajectory.fromWire({ ...wire, ...toHistoryMembers(histories) });
}

/** Creates the error of a scope without a turn: the expected model, the models that were called, and the dropped calls. */
function nothingCapturedError({ policy, logs, otherModels }: CaptureScope): ArgumentError {
  const expected = policy === undefined ? "a model address such as `entity/project/name:step7`" : `\`${policy.id}\``;
  const otherCalls = otherModels.length === 0 ? "no other sampling request was seen" : `seen were calls to ${otherModels.join(", ")}`;
  const dropped = logs.length === 0 ? "" : ` ${logs.join(" ")}`;
  return new ArgumentError(
    `No turn was captured: expected at least one request that samples ${expected}; ${otherCalls}.${dropped} Hand \`capture.fetch\` to the agent's client, and let it sample the policy through \`/chat/completions\`, \`/responses\`, \`/messages\` or \`/completions\`.`,
    { param: "run" },
  );
}
