/**
 * Tasks of a work thread for chat requests. Inputs and results are structured-cloneable; each task runs the same function that the serving
 * thread runs for small requests.
 */
import { Handover } from "../../base/util/worker-rpc.ts";
import type { TokenizerSource } from "../models/tokenizers.ts";
import { schemasOf, type OutputCheck } from "./generate/output-check.ts";
import { compileOutput, type OutputGrammarOptions } from "./generate/output-grammar.ts";
import { encodePrompt, type PromptText } from "./prompt/encode-prompt.ts";
import { renderText } from "./prompt/render-text.ts";
import type { OutputRequest } from "./request/output-request.ts";
import type { PromptRequest } from "./request/prompt-request.ts";

/** Loads ajv with the first schema, because it has a hundred modules. */
const loadValidation = () => import("./answer/output-validation.ts");

/** Creates the tasks of a thread. `ChatWork` calls them; each one is documented at the function that it runs. */
export function createChatTasks(tokenizers: TokenizerSource) {
  return {
    renderText: async ({ directory, request }: { readonly directory: string; readonly request: PromptRequest }): Promise<string> =>
      renderText(await tokenizers(directory), request),

    encode: async (prompt: PromptText): Promise<Handover<Int32Array>> => {
      const ids = encodePrompt(await tokenizers(prompt.directory), prompt);
      return new Handover(ids, [ids.buffer as ArrayBuffer]);
    },

    grammar: ({ request, options }: { readonly request: OutputRequest; readonly options: OutputGrammarOptions }) => {
      const { grammar, states, check } = compileOutput(request, options);
      return { text: JSON.stringify(grammar), states, check };
    },

    checkValidators: async (check: OutputCheck): Promise<void> => {
      const { checkValidator } = await loadValidation();
      for (const schema of schemasOf(check)) checkValidator(schema);
    },

    validate: async ({ schema, text }: { readonly schema: string; readonly text: string }): Promise<string | null> =>
      (await loadValidation()).violationOf(schema, text),
  } as const;
}

/** Tasks that {@link createChatTasks} creates. */
export type ChatTasks = ReturnType<typeof createChatTasks>;
