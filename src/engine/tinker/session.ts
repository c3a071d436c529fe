/** The session on the server: kept alive, and replaced where the server has lost it. */
import { NotFoundError } from "../../errors.ts";
import { doneAnswer, sessionAnswer } from "./answers.ts";
import { json, type TinkerTransport } from "./transport.ts";

/** A session that is not heard of for minutes is ended, and its models with it. */
const HEARTBEAT_MS = 10_000;

/** What models and samplers belong to. */
export class Session {
  readonly #transport: TinkerTransport;
  readonly #heartbeat: NodeJS.Timeout;
  #id: string;
  #numbers = 0;

  private constructor(transport: TinkerTransport, id: string, heartbeatMs: number) {
    [this.#transport, this.#id] = [transport, id];
    this.#heartbeat = setInterval(() => void this.#beat(heartbeatMs), heartbeatMs).unref();
  }

  /** Opens a session. `heartbeatMs` is how often the server hears of it, milliseconds. @default 10000 */
  static async open(transport: TinkerTransport, heartbeatMs = HEARTBEAT_MS): Promise<Session> {
    return new Session(transport, await create(transport), heartbeatMs);
  }

  /** As the server calls it now. */
  get id(): string {
    return this.#id;
  }

  /** Numbers of models and samplers, each used once. */
  next(): number {
    return this.#numbers++;
  }

  /** Ends the beats; the server ends the session when it has fallen silent. */
  close(): void {
    clearInterval(this.#heartbeat);
  }

  /**
   * A beat that fails is followed by the next; calls say themselves when the server is gone. A server that was started anew knows
   * the session no more: its models are gone, and those to come belong to another.
   */
  async #beat(periodMs: number): Promise<void> {
    const signal = AbortSignal.timeout(periodMs);
    try {
      await this.#transport.post("session_heartbeat", json({ session_id: this.#id, type: "session_heartbeat" }), doneAnswer, { signal });
    } catch (error) {
      if (!(error instanceof NotFoundError)) return;
      this.#id = await create(this.#transport, signal).catch(() => this.#id);
    }
  }
}

async function create(transport: TinkerTransport, signal?: AbortSignal): Promise<string> {
  const request = { tags: [], user_metadata: null, sdk_version: "whetstone", type: "create_session" };
  return (await transport.post("create_session", json(request), sessionAnswer, { signal })).session_id;
}
