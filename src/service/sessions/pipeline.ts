/** Decorator of the chat pipeline that samples and records the requests of sessions. */
import { ForbiddenError, InternalError } from "../../base/errors.ts";
import type { ChatCompletion, SessionSampling } from "../../base/schema/index.ts";
import { findTurn, markDelivered, type TurnKey } from "../store/sessions.ts";
import type { SessionRow, SessionTurnRow } from "../store/tables.ts";
import { chunkStream, type ChunkSource } from "../chat/answer/chunk-source.ts";
import type { Principal } from "../http/principal.ts";
import type { ChatAnswer, ChatCall, ChatPipeline, RenderCall } from "../chat/pipeline.ts";
import type { WholeAnswer } from "../chat/answer/whole-answer.ts";
import { clientGone } from "../chat/request/client-signal.ts";
import { onceAborted } from "../../base/util/abort.ts";
import { recordedAnswer, withoutUnasked } from "./answers.ts";
import { withTokenLimit, type Asked, type SessionFields } from "../chat/request/effective-request.ts";
import type { RunningTurn } from "./running-turn.ts";
import { requireOpenSession, type StoredSessions } from "./sessions.ts";
import type { RequestScope } from "../observability/observer.ts";
import { TurnStream } from "./turn-stream.ts";

/**
 * Adds sessions to a pipeline. A call of a session key samples the session's model with its fields and becomes one of its turns;
 * a repeated call is answered from the record. Other calls pass unchanged.
 *
 * @throws ForbiddenError `E_FORBIDDEN` from `complete` if the session is finished or at a limit.
 */
export function sessionPipeline(inner: ChatPipeline, sessions: StoredSessions): ChatPipeline {
  const sessionOf = async ({ sessionKey }: Principal): Promise<SessionRow | undefined> => {
    if (sessionKey === null) return undefined;
    const row = await sessions.ofKey(sessionKey);
    if (row === undefined) throw new ForbiddenError("The session of this key has expired or was deleted. Create another session");
    return row;
  };
  return {
    requireRoom(principal) {
      if (principal.sessionKey === null) inner.requireRoom(principal);
    },
    async readOptions(principal) {
      const session = await sessionOf(principal);
      const options = await inner.readOptions(principal);
      return session === undefined ? options : { ...options, session: fieldsOf(session) };
    },
    async complete(call) {
      const session = await sessionOf(call.principal);
      return session === undefined ? inner.complete(call) : complete(inner, sessions, session, call);
    },
    async render(call) {
      const session = await sessionOf(call.principal);
      return inner.render(session === undefined ? call : innerCall(call, session));
    },
    explain: (error, scope) => inner.explain(error, scope),
  };
}

/** Returns the fields that a session sets in its requests. */
function fieldsOf(session: SessionRow): SessionFields {
  return {
    model: session.model,
    defaults: JSON.parse(session.sampling_defaults) as SessionSampling,
    overrides: JSON.parse(session.sampling_overrides) as SessionSampling,
    limitsTokens: session.max_tokens !== null,
  };
}

/** Returns the call for the inner pipeline, where the session is a conversation: the sampled ids of all sessions share one memory. */
function innerCall<C extends RenderCall>(call: C, session: SessionRow): C {
  return { ...call, conversation: session.id };
}

/** Samples and records a request of a session, or answers a repeated one from the record. */
async function complete(inner: ChatPipeline, sessions: StoredSessions, session: SessionRow, call: ChatCall): Promise<ChatAnswer> {
  requireOpenSession(session);
  const { dialect, digest, retryCount } = call.source;
  const key: TurnKey = { session_id: session.id, dialect, digest };
  const { turn: request } = call.request;
  if (request === null) throw new InternalError("Expected the request of a session to be read with the fields of the session");
  const { asked } = request;
  if (retryCount !== null && retryCount > 0) {
    const repeated = await repeat(sessions, key, call);
    if (repeated !== null) return recordedAnswer(JSON.parse(repeated.completion) as ChatCompletion, asked);
  }
  const turn = sessions.begin(session, key);
  const detach = turn.attach(call.signal);
  try {
    const maxOutputTokens = await sessions.reserve(session, turn, { choices: Math.max(asked.n, 1), maxTokens: request.maxTokens });
    const recording = { sessions, turn, requestJson: withTokenLimit(request.json(), request.limits, maxOutputTokens) };
    const answer = await inner.complete({
      ...innerCall(call, session),
      signal: turn.signal,
      ...(maxOutputTokens === null ? {} : { maxOutputTokens }),
    });
    switch (answer.kind) {
      case "refusal":
        turn.fail(new Error(`The request was refused with ${answer.status}`));
        return answer;
      case "stream":
        return {
          kind: "stream",
          stream: chunkStream(
            stream(inner, answer.stream.chunks(), { ...recording, scope: call.scope, asked, detach, isDrained: maxOutputTokens !== null }),
          ),
        };
      case "whole": {
        const json = answer.answer.json();
        const text = typeof json === "string" ? json : await new Response(json).text();
        const completion = answer.answer.completion();
        await record(recording, { completion, text });
        return { kind: "whole", answer: shownAnswer(completion, text, asked) };
      }
    }
  } catch (error) {
    const reason: unknown = turn.signal.aborted ? turn.signal.reason : error;
    turn.fail(reason);
    throw reason;
  }
}

/** Returns the answer without the parts that the agent did not ask for. */
function shownAnswer(completion: ChatCompletion, text: string, asked: Asked): WholeAnswer {
  if (asked.logprobs && asked.tokenIds) return { completion: () => completion, json: () => text };
  const shown = withoutUnasked(completion, asked);
  return { completion: () => shown, json: () => JSON.stringify(shown) };
}

/**
 * Returns the recorded turn that a request repeats, and waits for it if it is still sampled. Null for a request that repeats no turn, or
 * one that failed: it must be sampled.
 */
async function repeat(sessions: StoredSessions, key: TurnKey, call: ChatCall): Promise<SessionTurnRow | null> {
  if (sessions.takeFailure(key)) return null;
  const running = sessions.findRunning(key);
  // A turn without a client comes first: the client that repeats the request is most likely the one that has lost it.
  if (running !== undefined && running.clients === 0) return delivered(sessions, await join(running, call));
  const recorded = await findTurn(sessions.store, key);
  if (recorded !== undefined && recorded.is_delivered === 0) return delivered(sessions, recorded);
  if (running !== undefined) return delivered(sessions, await join(running, call));
  return recorded ?? null;
}

/** Marks a turn as delivered, unless it is marked already, and returns it. */
async function delivered(sessions: StoredSessions, turn: SessionTurnRow): Promise<SessionTurnRow> {
  if (turn.is_delivered === 0) await markDelivered(sessions.store, turn);
  return turn;
}

/** Waits for the record of a running turn, as one of its clients. */
async function join(turn: RunningTurn, { signal }: ChatCall): Promise<SessionTurnRow> {
  const detach = turn.attach(signal);
  turn.onJoin();
  try {
    return await new Promise((resolve, reject) => {
      const removeListener = onceAborted(signal, () => reject(clientGone()));
      turn.recorded.then(resolve, reject).finally(removeListener);
    });
  } finally {
    detach();
  }
}

/** Returns the completion of a stream as JSON, with the usage that a stream reports only on request. */
function textOf(completion: ChatCompletion): string {
  const { prompt_token_ids: promptIds, usage } = completion;
  const [prompt, tokens] = [promptIds?.length ?? 0, tokensOf(completion)];
  const counted = { prompt_tokens: prompt, completion_tokens: tokens, total_tokens: prompt + tokens };
  return JSON.stringify({ ...completion, usage: usage.total_tokens > 0 ? usage : counted });
}

/** Returns the number of sampled tokens. */
function tokensOf({ choices }: ChatCompletion): number {
  return choices.reduce((sum, { token_ids: ids }) => sum + (ids?.length ?? 0), 0);
}

/** Turn to record. */
interface Recording {
  readonly sessions: StoredSessions;
  readonly turn: RunningTurn;
  /** Body of the request, as JSON. */
  readonly requestJson: string;
}

/**
 * Records a completion and ends its turn.
 *
 * @param answer - The completion, also as JSON.
 */
function record(
  { sessions, turn, requestJson }: Recording,
  { completion, text }: { readonly completion: ChatCompletion; readonly text: string },
): Promise<void> {
  const row: SessionTurnRow = {
    ...turn.key,
    seq: turn.seq,
    request: requestJson,
    completion: text,
    is_delivered: turn.clients > 0 ? 1 : 0,
    created_at: new Date().toISOString(),
  };
  return sessions.record(turn, { row, tokens: tokensOf(completion) });
}

/** Context of the stream of a turn. */
interface StreamContext extends Recording {
  readonly scope: RequestScope;
  readonly asked: Asked;
  /** Releases the client. */
  readonly detach: () => void;
  /**
   * Whether the stream is read as fast as the engine samples, even if the client reads slowly or not at all. True if the turn has reserved
   * tokens of its session, because other requests of the session may wait for them.
   */
  readonly isDrained: boolean;
}

/** Returns the stream of a turn, which is recorded before its end is sent. */
function stream(inner: ChatPipeline, source: ChunkSource, context: StreamContext): ChunkSource {
  const { turn, scope, asked, detach, isDrained } = context;
  const chunks = new TurnStream(source, {
    asked,
    onCompletion: (completion) => record(context, { completion, text: textOf(completion) }),
    onFailure(failure) {
      turn.fail(turn.signal.aborted ? turn.signal.reason : new Error(failure.error.message));
      return turn.signal.aborted ? inner.explain(turn.signal.reason, scope).body : failure;
    },
    explain: (error) => inner.explain(error, scope).body,
    onDisconnect: detach,
  });
  turn.onJoin = () => chunks.drain();
  if (isDrained) chunks.drain();
  return chunks;
}
