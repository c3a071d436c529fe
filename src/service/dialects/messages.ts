/** The Messages dialect (`POST /v1/messages`). */
import { singleAnswer, type Dialect } from "./dialect.ts";
import type { Opened, TranslatedMessage } from "./translations.ts";
import { toMessagesAnswer } from "../../dialects/messages/answer.ts";
import { MessageEvents, PING } from "../../dialects/messages/events.ts";

/** Dialect of Anthropic's Messages API. */
export const messagesDialect: Dialect<Opened<TranslatedMessage>, "messages"> = {
  name: "messages",
  ping: PING,
  open({ calls, isStream, omitsThinking }) {
    return {
      calls,
      answer: singleAnswer((completion) => toMessagesAnswer(completion, omitsThinking)),
      shaper: isStream ? new MessageEvents(omitsThinking) : null,
    };
  },
};
