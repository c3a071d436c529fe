/**
 * Tasks of a work thread. Inputs and results are structured-cloneable; each task runs the same function that the serving thread runs for
 * small requests.
 */
import { Handover, type MethodInput, type MethodName, type MethodOutput } from "../../util/worker-rpc.ts";
import { ConflictError } from "../../errors.ts";
import type { RlBatch } from "../../learner/index.ts";
import type { TrajectoryGroup } from "../../schema/index.ts";
import { encodePrompt, type PromptText } from "../chat/prompt/encode-prompt.ts";
import type { PromptRequest } from "../chat/request/prompt-request.ts";
import { renderText } from "../chat/prompt/render-text.ts";
import { readChat, type ParsedChat, type ChatBody } from "../chat/request/request.ts";
import { schemasOf, type OutputCheck } from "../chat/generate/output-check.ts";
import { compileOutput, type OutputGrammarOptions } from "../chat/generate/output-grammar.ts";
import type { OutputRequest } from "../chat/request/output-request.ts";
import { checkValidator, violationOf } from "../chat/answer/output-validation.ts";
import { translateBody, type Translated, type TranslationName } from "../dialects/translations.ts";
import { readSftData, type SftSource } from "../training-data/sft-data.ts";
import { createTokenizers, MAX_TOKENIZERS } from "../training-data/tokenizers.ts";
import { createTokenizer, readTokenizerData, type TokenizerData } from "../../tokenizer/index.ts";
import { Lru, remember } from "../../util/lru.ts";
import { readBody, type JsonBody, type PlainBody, type PlainKind } from "../requests.ts";
import { acceptGroups, batchOf, readRlRequest, type AcceptedGroups, type RlHead, type RlJobPlan } from "./rl-request.ts";
import { buffersOf, packSftData, type PackedSftData } from "./sft-examples.ts";

/** Data of tokenizers that this thread has read, or that another thread has read and the serving thread has sent. */
const tokenizerData = new Lru<string, Promise<TokenizerData>>({ maxEntries: MAX_TOKENIZERS });
const readOnce = (directory: string): Promise<TokenizerData> => remember(tokenizerData, directory, () => readTokenizerData(directory));
const tokenizers = createTokenizers(async (directory) => createTokenizer(await readOnce(directory)));

/** Groups parsed by `readRl`, for the following `acceptRl` on the same thread. */
let opened: readonly TrajectoryGroup[] | null = null;

/** Tasks by name. The second argument of a task is the caller's abort signal. */
export const TASKS = {
  readBody: ({ kind, bytes }: { readonly kind: PlainKind; readonly bytes: Uint8Array }): JsonBody<PlainBody<PlainKind>> =>
    readBody(kind, bytes),

  readChat: (body: ChatBody): ParsedChat => readChat(body),

  translate: async ({ name, bytes }: { readonly name: TranslationName; readonly bytes: Uint8Array }) => {
    const translated: Translated<TranslationName> = await translateBody(name, bytes);
    return new Handover(
      translated,
      translated.calls.map(({ body }) => body.buffer as ArrayBuffer),
    );
  },

  readTokenizer: (directory: string): Promise<TokenizerData> => readOnce(directory),

  /** Receives the data of a tokenizer for later tasks. Its tables are in shared memory, so that threads do not hold copies. */
  shareTokenizer: (data: TokenizerData): void => {
    void tokenizerData.set(data.directory, Promise.resolve(data));
  },

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

  checkValidators: (check: OutputCheck): void => schemasOf(check).forEach(checkValidator),

  validate: ({ schema, text }: { readonly schema: string; readonly text: string }): string | null => violationOf(schema, text),

  readRl: async (bytes: Uint8Array): Promise<RlHead> => {
    opened = null;
    const { head, groups } = await readRlRequest(bytes);
    opened = groups;
    return head;
  },

  acceptRl: async (plan: RlJobPlan): Promise<AcceptedGroups> => {
    const groups = opened;
    opened = null;
    if (groups === null) throw new ConflictError("Expected the groups of an RL job to be read first");
    return acceptGroups(groups, plan, tokenizers);
  },

  rlBatch: async (plan: RlJobPlan, signal: AbortSignal): Promise<Handover<RlBatch>> => {
    const batch = await batchOf(plan, tokenizers, signal);
    const buffers = batch.rows.flatMap(({ tokens, weights, advantages, logprobs }) =>
      [tokens, weights, advantages, logprobs].flatMap((list) => (list === undefined ? [] : [list.buffer])),
    );
    return new Handover(batch, [...new Set(buffers)] as ArrayBuffer[]);
  },

  sftData: async (source: SftSource, signal: AbortSignal): Promise<Handover<PackedSftData>> => {
    const tokenizer = await tokenizers(source.base.directory);
    const packed = packSftData(await readSftData(source, { tokenizer, signal }));
    return new Handover(packed, buffersOf(packed));
  },
} as const;

/** Methods of a work thread. */
export type Tasks = typeof TASKS;
export type TaskName = MethodName<Tasks>;
export type TaskInput<N extends TaskName> = MethodInput<Tasks, N>;
export type TaskOutput<N extends TaskName> = MethodOutput<Tasks, N>;
