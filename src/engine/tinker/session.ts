/** Session on a Tinker server, kept alive by heartbeats and replaced if the server has lost it. */
import { NotFoundError } from "../../base/errors.ts";
import { doneAnswer, sessionAnswer } from "./answers.ts";
import { json, type TinkerTransport } from "./transport.ts";

/** Period of heartbeats in milliseconds. A server ends a session, with its models, after some minutes without a heartbeat. */
const HEARTBEAT_MS = 10_000;

/** Session that models and samplers belong to. */
export class TinkerSession {
  readonly #transport: TinkerTransport;
  readonly #heartbeat: NodeJS.Timeout;
  #id: string;
  /** Number of calls of {@link next}. */
  #usedNumbers = 0;

  private constructor(transport: TinkerTransport, id: string, heartbeatMs: number) {
    this.#transport = transport;
    this.#id = id;
    this.#heartbeat = setInterval(() => void this.#beat(heartbeatMs), heartbeatMs).unref();
  }

  /** Opens a session. @param heartbeatMs - Period of heartbeats in milliseconds. @default 10000 */
  static async open(transport: TinkerTransport, heartbeatMs = HEARTBEAT_MS): Promise<TinkerSession> {
    return new TinkerSession(transport, await createSession(transport), heartbeatMs);
  }

  /** Current identifier of the session on the server. */
  get id(): string {
    return this.#id;
  }

  /** Returns the next number for a model or sampler, from 0; each number is used once. */
  next(): number {
    return this.#usedNumbers++;
  }

  /** Stops the heartbeats; the server then ends the session. */
  close(): void {
    clearInterval(this.#heartbeat);
  }

  /**
   * Sends a heartbeat. Failures are ignored: calls report an unreachable server themselves. If the server no longer knows the session,
   * for example after a restart, its models are lost and a new session is created for later models.
   */
  async #beat(periodMs: number): Promise<void> {
    const signal = AbortSignal.timeout(periodMs);
    try {
      await this.#transport.post("session_heartbeat", json({ session_id: this.#id, type: "session_heartbeat" }), doneAnswer, { signal });
    } catch (error) {
      if (!(error instanceof NotFoundError)) return;
      this.#id = await createSession(this.#transport, signal).catch(() => this.#id);
    }
  }
}

/** Creates a session on the server and returns its identifier. */
async function createSession(transport: TinkerTransport, signal?: AbortSignal): Promise<string> {
  const request = { tags: [], user_metadata: null, sdk_version: "whetstone", type: "create_session" };
  const { session_id: id } = await transport.post("create_session", json(request), sessionAnswer, { signal });
  return id;
}
