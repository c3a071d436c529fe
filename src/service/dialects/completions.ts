/** The text completion dialect (`POST /v1/completions`). */
import type { RenderedCall } from "../chat/pipeline.ts";
import type { OpenedChat } from "../chat/request/opened-chat.ts";
import { builtAnswer, type Dialect } from "./dialect.ts";
import type { Opened, TranslatedTexts } from "./translations.ts";
import { CompletionEvents, TextCompletionAnswer, type Echo } from "../../dialects/completions/answer.ts";

/** Returns the echo of a prompt: its text as the client sent it, or the text of its token ids. */
function echoOf({ prompt }: OpenedChat, { ids: promptIds, tokenizer }: RenderedCall): Echo {
  const ids = [...promptIds];
  const text = prompt !== undefined && "text" in prompt ? prompt.text : tokenizer.decode(ids);
  return { text, ids, tokens: ids.map((id) => tokenizer.tokenText(id)) };
}

/** Dialect of OpenAI's text completions. */
export const completionsDialect: Dialect<Opened<TranslatedTexts>, "completions"> = {
  name: "completions",
  async open(translated, { render }) {
    const { request, calls } = translated;
    const echoes = request.echo === true ? await Promise.all(calls.map(async (call) => echoOf(call, await render(call)))) : null;
    const context = { ...translated, echoes };
    return {
      calls,
      answer: builtAnswer(new TextCompletionAnswer(context)),
      shaper: request.stream === true ? new CompletionEvents(context) : null,
    };
  },
};
