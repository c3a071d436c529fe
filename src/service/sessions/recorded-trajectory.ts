/** Trajectory of a session, reconstructed from its turns. */
import { promptMessages, type RawPrompt } from "../../dialects/index.ts";
import { chatCompletion, chatCompletionRequest, type Trajectory } from "../../base/schema/index.ts";
import { stepOf } from "../../base/trajectory/policy.ts";
import { driftLine, toHistories, toHistoryMembers, type RecordedCall } from "../../base/trajectory/histories.ts";
import { deliveredTurns } from "../store/sessions.ts";
import type { SessionRow, SessionTurnRow, Store } from "../store/tables.ts";

/** Returns the trajectory of the turns that are recorded and delivered so far. A session without reward has the reward 0. */
export async function recordedTrajectory(store: Store, session: SessionRow): Promise<Trajectory> {
  const calls = (await deliveredTurns(store, session.id)).map(toCall);
  const { histories, drifted } = toHistories(calls, null);
  const steps = calls.flatMap(({ completion }) => stepOf(completion.model) ?? []);
  return {
    ...toHistoryMembers(histories),
    reward: session.reward ?? 0,
    initial_policy_version: steps.length === 0 ? null : Math.min(...steps),
    final_policy_version: steps.at(-1) ?? null,
    metrics: JSON.parse(session.metrics) as Trajectory["metrics"],
    metadata: JSON.parse(session.metadata) as Trajectory["metadata"],
    logs: drifted.map(driftLine),
    start_time: session.created_at,
  };
}

/** Converts a recorded turn. A prompt without messages becomes a message of the user. */
function toCall({ seq, request, completion }: Pick<SessionTurnRow, "seq" | "request" | "completion">): RecordedCall {
  const body = JSON.parse(request) as { readonly prompt?: RawPrompt; readonly messages?: unknown };
  const isRaw = body.messages === undefined;
  const messages = isRaw ? promptMessages(body.prompt) : body.messages;
  return {
    order: seq,
    isRaw,
    request: chatCompletionRequest.parse({ ...body, messages }),
    completion: chatCompletion.parse(JSON.parse(completion)),
  };
}
