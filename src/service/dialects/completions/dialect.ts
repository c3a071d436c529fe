/** The text completion dialect (`POST /v1/completions`). */
import type { RenderedCall } from "../../chat/pipeline.ts";
import type { Dialect, DialectCall } from "../dialect.ts";
import type { TranslatedTexts } from "../translations.ts";
import { CompletionEvents, toTextCompletion, type Echo } from "./answer.ts";

function echoOf({ prompt }: DialectCall, { ids, tokenizer }: RenderedCall): Echo {
  const list = [...ids];
  const text = prompt !== undefined && "text" in prompt ? prompt.text : tokenizer.decode(list);
  return { text, ids: list, tokens: list.map((id) => tokenizer.tokenText(id)) };
}

/** Dialect of OpenAI's text completions. */
export const completionsDialect: Dialect<TranslatedTexts, "completions"> = {
  name: "completions",
  async open(translated, { render }) {
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
