/**
 * Decorator of the chat pipeline that samples and records the requests of sessions. A session is a series of requests of an agent with one
 * key; a turn is one of these requests with its answer.
 *
 * A turn begins with `StoredSessions.begin`, and every path ends it: `record` with its row, `RunningTurn.fail` with an error. Its end releases
 * the tokens that it has reserved.
 *
 * A client that has lost the connection repeats its request. Such a request must not become a second turn: it gets the recorded answer, or
 * waits for the turn that is still sampled (`repeatedTurn`).
 */
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
import { recordedAnswer, withRequestedParts } from "./answers.ts";
import { withTokenLimit, type RequestedParts, type SessionFields } from "../chat/request/effective-request.ts";
import type { TurnRequest } from "../chat/request/opened-chat.ts";
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
    const row = await sessions.known.rowOfKey(sessionKey);
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
      return session === undefined ? inner.complete(call) : completeTurn({ inner, sessions }, session, call);
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

/** Pipeline that samples, and the sessions that record. */
interface SessionContext {
  readonly inner: ChatPipeline;
  readonly sessions: StoredSessions;
}

/** Samples and records a request of a session, or answers a repeated one from the record. */
async function completeTurn(context: SessionContext, session: SessionRow, call: ChatCall): Promise<ChatAnswer> {
  requireOpenSession(session);
  const { dialect, digest, retryCount } = call.source;
  const key: TurnKey = { session_id: session.id, dialect, digest };
  const { turn: request } = call.request;
  if (request === null) throw new InternalError("Expected the request of a session to be read with the fields of the session");
  if (retryCount !== null && retryCount > 0) {
    const repeated = await repeatedTurn(context.sessions, key, call);
    if (repeated !== null) return recordedAnswer(JSON.parse(repeated.completion) as ChatCompletion, request.requested);
  }
  return sampleTurn(context, session, { call, key, request });
}

/** Request of a session that is sampled. */
interface SampledRequest {
  readonly call: ChatCall;
  readonly key: TurnKey;
  readonly request: TurnRequest;
}

/** Samples a request of a session and records it as a turn. */
async function sampleTurn(context: SessionContext, session: SessionRow, { call, key, request }: SampledRequest): Promise<ChatAnswer> {
  const { inner, sessions } = context;
  const { requested } = request;
  const turn = sessions.begin(session, key);
  const detach = turn.attach(call.signal);
  try {
    const maxOutputTokens = await sessions.reserve(session, turn, { choices: Math.max(requested.n, 1), maxTokens: request.maxTokens });
    const recording: Recording = { turn, requested, requestJson: withTokenLimit(request.json(), request.limits, maxOutputTokens) };
    // The signal of the turn replaces the client's: sampling continues for a while after the client has disconnected.
    const answer = await inner.complete({
      ...innerCall(call, session),
      signal: turn.signal,
      ...(maxOutputTokens === null ? {} : { maxOutputTokens }),
    });
    switch (answer.kind) {
      case "refusal":
        turn.fail(new Error(`The request was refused with ${answer.status}`));
        return answer;
      case "stream": {
        const client = { scope: call.scope, detach, isDrained: maxOutputTokens !== null };
        const chunks = recordedStream(context, answer.stream.chunks(), { ...recording, ...client });
        return { kind: "stream", stream: chunkStream(chunks) };
      }
      case "whole":
        return { kind: "whole", answer: await recordedWhole(sessions, answer.answer, recording) };
    }
  } catch (error) {
    // Once the turn is cancelled, other errors are consequences of that.
    const reason: unknown = turn.signal.aborted ? turn.signal.reason : error;
    turn.fail(reason);
    throw reason;
  }
}

/** Records a whole answer, and returns it without the parts that the agent did not request. */
async function recordedWhole(sessions: StoredSessions, answer: WholeAnswer, recording: Recording): Promise<WholeAnswer> {
  const json = answer.json();
  const text = typeof json === "string" ? json : await new Response(json).text();
  const completion = answer.completion();
  await record(sessions, recording, { completion, text });
  return shownAnswer(completion, text, recording.requested);
}

/** Returns an answer without the parts that the agent did not request. `text` is the completion as JSON. */
function shownAnswer(completion: ChatCompletion, text: string, requested: RequestedParts): WholeAnswer {
  if (requested.logprobs && requested.tokenIds) return { completion: () => completion, json: () => text };
  const shown = withRequestedParts(completion, requested);
  return { completion: () => shown, json: () => JSON.stringify(shown) };
}

/**
 * Returns the recorded turn that a request repeats, and waits for it if it is still sampled. Null for a request that repeats no turn, or
 * one that failed: it must be sampled.
 *
 * An agent may send equal requests on purpose, so that several turns may have the same key. The repetition most likely belongs to a turn whose
 * answer no client has received: first a running one without clients, then a recorded one that is not delivered.
 */
async function repeatedTurn(sessions: StoredSessions, key: TurnKey, call: ChatCall): Promise<SessionTurnRow | null> {
  if (sessions.takeFailure(key)) return null;
  const running = sessions.findRunning(key);
  if (running !== undefined && running.clients === 0) return deliver(sessions, await joinTurn(running, call));
  const recorded = await findTurn(sessions.store, key);
  if (recorded !== undefined && recorded.is_delivered === 0) return deliver(sessions, recorded);
  if (running !== undefined) return deliver(sessions, await joinTurn(running, call));
  return recorded ?? null;
}

/** Marks a turn as delivered, unless it is marked already, and returns it. */
async function deliver(sessions: StoredSessions, turn: SessionTurnRow): Promise<SessionTurnRow> {
  if (turn.is_delivered === 0) await markDelivered(sessions.store, turn);
  return turn;
}

/** Waits for the record of a running turn, as one of its clients. */
async function joinTurn(turn: RunningTurn, { signal }: ChatCall): Promise<SessionTurnRow> {
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

/** Returns the completion of a stream as JSON. Token counts that the stream did not report are counted here. */
function completionJson(completion: ChatCompletion): string {
  const { prompt_token_ids: promptIds, usage } = completion;
  const promptTokens = promptIds?.length ?? 0;
  const sampledTokens = countSampledTokens(completion);
  const counted = { prompt_tokens: promptTokens, completion_tokens: sampledTokens, total_tokens: promptTokens + sampledTokens };
  return JSON.stringify({ ...completion, usage: usage.total_tokens > 0 ? usage : counted });
}

/** Returns the number of sampled tokens of all choices. */
function countSampledTokens({ choices }: ChatCompletion): number {
  return choices.reduce((sum, { token_ids: ids }) => sum + (ids?.length ?? 0), 0);
}

/** Turn to record. */
interface Recording {
  readonly turn: RunningTurn;
  readonly requested: RequestedParts;
  /** Body of the request, as JSON. */
  readonly requestJson: string;
}

/** Records a completion, given also as JSON, and ends its turn. */
function record(
  sessions: StoredSessions,
  { turn, requestJson }: Recording,
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
  return sessions.record(turn, { row, tokens: countSampledTokens(completion) });
}

/** Turn to record from a stream. */
interface StreamRecording extends Recording {
  readonly scope: RequestScope;
  /** Removes the client of the stream from the turn. */
  readonly detach: () => void;
  /**
   * Whether the stream is read as fast as the engine samples, even if the client reads slowly or not at all. True if the turn has reserved
   * tokens of its session, because other requests of the session may wait for them.
   */
  readonly isDrained: boolean;
}

/** Returns the stream of a turn, which is recorded before its end is sent. */
function recordedStream({ inner, sessions }: SessionContext, source: ChunkSource, recording: StreamRecording): ChunkSource {
  const { turn, scope, requested, detach, isDrained } = recording;
  const chunks = new TurnStream(source, {
    requested,
    onCompletion: (completion) => record(sessions, recording, { completion, text: completionJson(completion) }),
    onFailure(failure) {
      turn.fail(turn.signal.aborted ? turn.signal.reason : new Error(failure.error.message));
      return turn.signal.aborted ? inner.explain(turn.signal.reason, scope).body : failure;
    },
    explain: (error) => inner.explain(error, scope).body,
    onDisconnect: detach,
  });
  // A repetition waits for the record, although the client of this stream may have stopped reading.
  turn.onJoin = () => chunks.drain();
  if (isDrained) chunks.drain();
  return chunks;
}
