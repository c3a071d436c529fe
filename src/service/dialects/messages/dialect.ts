/** The Messages dialect (`POST /v1/messages`). */
import { messagesToChat } from "../../../dialects/index.ts";
import type { Dialect } from "../dialect.ts";
import { toMessage } from "./answer.ts";
import { MessageEvents, PING } from "./events.ts";

/** Dialect of Anthropic's Messages API. */
export const messagesDialect: Dialect = {
  name: "messages",
  ping: PING,
  open(members) {
    const { body, isStream } = messagesToChat(members);
    return {
      calls: [{ body }],
      answer: ([completion]) => toMessage(completion!),
      shaper: isStream ? new MessageEvents() : null,
    };
  },
};
