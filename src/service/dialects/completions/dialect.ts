/** The text completion dialect (`POST /v1/completions`). */
import { completionsToChats, type TranslatedCall } from "../../../dialects/index.ts";
import type { RenderedCall } from "../../chat/pipeline.ts";
import type { Dialect } from "../dialect.ts";
import { rejectMessageFields } from "../message-fields.ts";
import { CompletionEvents, toTextCompletion, type Echo } from "./answer.ts";

function echoOf({ prompt }: TranslatedCall, { ids, tokenizer }: RenderedCall): Echo {
  const list = [...ids];
  const text = prompt !== undefined && "text" in prompt ? prompt.text : tokenizer.decode(list);
  return { text, ids: list, tokens: list.map((id) => tokenizer.tokenText(id)) };
}

/** Dialect of OpenAI's text completions. */
export const completionsDialect: Dialect = {
  name: "completions",
  async open(members, { render }) {
    rejectMessageFields(members);
    const translated = completionsToChats(members);
    const { request, calls } = translated;
    const echoes = request.echo === true ? await Promise.all(calls.map(async (call) => echoOf(call, await render(call)))) : null;
    const context = { ...translated, echoes };
    return {
      calls,
      answer: (completions) => toTextCompletion(context, completions),
      shaper: request.stream === true ? new CompletionEvents(context) : null,
    };
  },
};
