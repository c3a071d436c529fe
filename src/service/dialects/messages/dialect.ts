/** The Messages dialect (`POST /v1/messages`). */
import type { Dialect } from "../dialect.ts";
import type { TranslatedMessage } from "../translations.ts";
import { toMessage } from "./answer.ts";
import { MessageEvents, PING } from "./events.ts";

/** Dialect of Anthropic's Messages API. */
export const messagesDialect: Dialect<TranslatedMessage, "messages"> = {
  name: "messages",
  ping: PING,
  open({ calls, isStream }) {
    return {
      calls,
      answer: ([completion]) => toMessage(completion!),
      shaper: isStream ? new MessageEvents() : null,
    };
  },
};
