/** Fields of chat completions that act on messages, in dialects without messages. */
import { unsupportedMember, type Members } from "../../dialects/index.ts";
import { FIELD_ROWS } from "../../base/schema/chat-fields.ts";
import { isDefault } from "../chat/request/fields.ts";

/** Fields that act on messages. `add_special_tokens` also acts on a prompt without messages. */
const MESSAGE_FIELDS = FIELD_ROWS.filter(
  ([name, { changes }]) => (changes === "prompt" && name !== "add_special_tokens") || name === "tool_choice",
).map(([name]) => name);

/** Rejects the fields of chat completions that act on messages. @throws UnsupportedError `E_UNSUPPORTED` */
export function rejectMessageFields(members: Members): void {
  for (const name of MESSAGE_FIELDS)
    if (!isDefault(name, members[name]))
      throw unsupportedMember(name, members[name], "This route has no messages; leave the field out, or use /v1/chat/completions");
}
