/** Rollouts of agents outside of this process, recorded by the service. */
import type { CreateSessionOptions, CreatedSessionInfo, Service, SessionInfo, SessionScore } from "../client/index.ts";
import { ArgumentError } from "../../base/errors.ts";
import { Trajectory } from "../../base/trajectory/index.ts";

/** Session of a rollout: model, sampling fields and limits, and the function that starts the agent. */
export interface SessionRolloutOptions extends CreateSessionOptions {
  /**
   * Starts the agent, which samples with `session.key` at a URL of `session.urls`. With a score, the rollout ends when the returned promise
   * resolves; without, when the agent finishes the session with `POST {urls.session}/finish`.
   */
  readonly run: (
    session: CreatedSessionInfo,
    options: { readonly signal: AbortSignal },
  ) => SessionScore | void | Promise<SessionScore | void>;
}

/** Implements `Capture.session`: creates a session, runs the agent, waits for the score, and deletes the session. */
export async function sessionTrajectory(
  service: Pick<Service, "sessions">,
  { run, signal, timeoutMs, ...fields }: SessionRolloutOptions,
): Promise<Trajectory> {
  const { sessions } = service;
  const timeout = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs);
  /** Aborted when the rollout has ended, so that no request to the session remains. */
  const finished = new AbortController();
  const stop = AbortSignal.any([finished.signal, signal, timeout].filter((each) => each !== undefined));
  stop.throwIfAborted();
  const session = await sessions.create({ ...fields, signal: stop });
  try {
    const sessionEnd = sessions.wait(session.id, { signal: stop });
    // Without a listener, its rejection after an error of `run` would end the process.
    sessionEnd.catch(() => {});
    const score = await run(session, { signal: stop });
    const isScored = score !== undefined && typeof score === "object";
    const { reward, status } = await (isScored ? sessions.finish(session.id, score, { signal: stop }) : sessionEnd);
    if (reward === null) throw noRewardError(session, status);
    return Trajectory.fromJSON(await sessions.trajectory(session.id, { signal: stop }));
  } finally {
    finished.abort();
    // The record is in the trajectory; deletion also cancels requests of an agent that still runs.
    await sessions.delete(session.id).catch(() => {});
  }
}

/** Creates the error of a session that ended without a reward. */
function noRewardError({ id }: SessionInfo, status: SessionInfo["status"]): ArgumentError {
  const why = status === "timed_out" ? "its time was over before the agent finished it" : "the agent finished it without a reward";
  return new ArgumentError(
    `Session ${id} has no reward: ${why}. Let the agent post {"reward": …} to {urls.session}/finish, or return a score from \`run\``,
    { param: "run" },
  );
}
