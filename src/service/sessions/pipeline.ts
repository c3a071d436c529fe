/** Decorator of the chat pipeline that samples and records the requests of sessions. */
import { ForbiddenError } from "../../errors.ts";
import type { ChatCompletion } from "../../schema/index.ts";
import { findSessionByKey, findTurn, markDelivered, type TurnKey } from "../store/sessions.ts";
import type { SessionRow, SessionTurnRow } from "../store/tables.ts";
import { chunkStream, type ChunkSource } from "../chat/answer/chunk-source.ts";
import type { ChatAnswer, ChatCall, ChatPipeline } from "../chat/pipeline.ts";
import { clientGone, onceAborted } from "../chat/request/client-signal.ts";
import { recordedAnswer, withoutUnasked } from "./answers.ts";
import { effectiveRequest, type Asked, type EffectiveRequest } from "./effective-request.ts";
import { isSessionKey } from "./keys.ts";
import type { RunningTurn } from "./running-turn.ts";
import { requireOpen, type Sessions } from "./sessions.ts";
import { TurnStream } from "./turn-stream.ts";

/** Credential of all sessions in the inner pipeline: sampled ids share one memory, and the sessions are separate conversations in it. */
const SESSIONS = "sessions";

/**
 * Adds sessions to a pipeline. A call with the key of a session samples the session's model with its fields and becomes one of its turns;
 * a repeated call is answered from the record. Other calls pass unchanged.
 *
 * @throws ForbiddenError `E_FORBIDDEN` from `complete` if the session is finished or at a limit.
 */
export function sessionPipeline(inner: ChatPipeline, sessions: Sessions): ChatPipeline {
  const sessionOf = async ({ credential }: ChatCall): Promise<SessionRow | undefined> => {
    if (!isSessionKey(credential)) return undefined;
    const row = await findSessionByKey(sessions.store, credential);
    if (row === undefined) throw new ForbiddenError("The session of this key has expired or was deleted. Create another session");
    return row;
  };
  return {
    async complete(call) {
      const session = await sessionOf(call);
      return session === undefined ? inner.complete(call) : complete(inner, sessions, session, call);
    },
    async render(call) {
      const session = await sessionOf(call);
      const request = session === undefined ? null : effectiveRequest(call, session);
      return inner.render(session === undefined || request === null ? call : innerCall(call, session, request));
    },
    explain: (error) => inner.explain(error),
    requestIdHeader: (given) => inner.requestIdHeader(given),
  };
}

function innerCall(call: ChatCall, session: SessionRow, { body }: EffectiveRequest): ChatCall {
  return { ...call, body: new TextEncoder().encode(body), credential: SESSIONS, conversation: session.id };
}

async function complete(inner: ChatPipeline, sessions: Sessions, session: SessionRow, call: ChatCall): Promise<ChatAnswer> {
  requireOpen(session);
  const { dialect, digest, retryCount } = call.source;
  const key: TurnKey = { session_id: session.id, dialect, digest };
  const request = effectiveRequest(call, session);
  // The inner pipeline rejects a body that is not a JSON object.
  if (request === null) return inner.complete(call);
  const { asked } = request;
  if (retryCount !== null && retryCount > 0) {
    const repeated = await repeat(sessions, key, call);
    if (repeated !== null) return recordedAnswer(JSON.parse(repeated.completion) as ChatCompletion, asked);
  }
  const turn = sessions.begin(session, key);
  const detach = turn.attach(call.signal);
  try {
    const answer = await inner.complete({ ...innerCall(call, session, request), signal: turn.signal });
    switch (answer.kind) {
      case "refusal":
        turn.fail(new Error(`The request was refused with ${answer.status}`));
        return answer;
      case "stream":
        return { kind: "stream", stream: chunkStream(stream(inner, answer.stream.chunks(), { sessions, turn, request, detach })) };
      case "json": {
        const text = typeof answer.body === "string" ? answer.body : await new Response(answer.body).text();
        const completion = JSON.parse(text) as ChatCompletion;
        await record(sessions, turn, request, { completion, text });
        return { kind: "json", body: isUnchanged(asked) ? text : JSON.stringify(withoutUnasked(completion, asked)) };
      }
    }
  } catch (error) {
    const reason: unknown = turn.signal.aborted ? turn.signal.reason : error;
    turn.fail(reason);
    throw reason;
  }
}

function isUnchanged({ logprobs, tokenIds }: Asked): boolean {
  return logprobs && tokenIds;
}

/** Waits for the turn that a request repeats, or reads it from the record. Null without one. */
async function repeat(sessions: Sessions, key: TurnKey, call: ChatCall): Promise<SessionTurnRow | null> {
  if (sessions.takeFailure(key)) return null;
  const orphan = sessions.findRunning(key);
  if (orphan !== undefined && orphan.clients === 0) return join(orphan, call);
  const recorded = await findTurn(sessions.store, key);
  if (recorded !== undefined && recorded.is_delivered === 0) {
    await markDelivered(sessions.store, recorded);
    return recorded;
  }
  return orphan === undefined ? (recorded ?? null) : join(orphan, call);
}

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

function tokensOf({ choices }: ChatCompletion): number {
  return choices.reduce((sum, { token_ids: ids }) => sum + (ids?.length ?? 0), 0);
}

/**
 * Records a completion and ends its turn.
 *
 * @param answer - The completion, also as JSON.
 */
async function record(
  sessions: Sessions,
  turn: RunningTurn,
  { recorded }: EffectiveRequest,
  { completion, text }: { readonly completion: ChatCompletion; readonly text: string },
): Promise<void> {
  const row: SessionTurnRow = {
    ...turn.key,
    seq: turn.seq,
    request: recorded,
    completion: text,
    is_delivered: turn.clients > 0 ? 1 : 0,
    created_at: new Date().toISOString(),
  };
  await sessions.writer.record({ row, tokens: tokensOf(completion) });
  turn.succeed(row);
}

function stream(
  inner: ChatPipeline,
  source: ChunkSource,
  {
    sessions,
    turn,
    request,
    detach,
  }: { readonly sessions: Sessions; readonly turn: RunningTurn; readonly request: EffectiveRequest; readonly detach: () => void },
): ChunkSource {
  const chunks = new TurnStream(source, {
    asked: request.asked,
    onCompletion: (completion) => record(sessions, turn, request, { completion, text: textOf(completion) }),
    onFailure(failure) {
      turn.fail(turn.signal.aborted ? turn.signal.reason : new Error(failure.error.message));
      return turn.signal.aborted ? inner.explain(turn.signal.reason).body : failure;
    },
    explain: (error) => inner.explain(error).body,
    onDisconnect: detach,
  });
  turn.onJoin = () => chunks.drain();
  return chunks;
}
