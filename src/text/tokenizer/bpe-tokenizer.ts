/** A BPE tokenizer with its chat template. */

import { ArgumentError, DataError, UnsupportedError } from "../../base/errors.ts";
import { AddedTokenFinder } from "./added-tokens.ts";
import { IdList } from "./bpe/ids.ts";
import { MergeTable } from "./bpe/merge-table.ts";
import { TextTable } from "./bpe/text-table.ts";
import { byteToken, WordEncoder } from "./bpe/word-encoder.ts";
import { bytesOfPiece } from "./byte-fallback.ts";
import { compileTemplate, type ChatTemplate } from "./chat-template.ts";
import type {
  ChatMessage,
  ChatTokenizer,
  EncodeOptions,
  RenderChatOptions,
  RenderedTraining,
  RenderTrainingOptions,
} from "./chat-tokenizer.ts";
import { templateMessages } from "./template-messages.ts";
import { supportTools } from "./tool-messages.ts";
import { PipelineEncoder, Tail } from "./text-encoder.ts";
import { bytesOfText, type TokenizerData } from "./tokenizer-data.ts";
import { trainingSegments } from "./training-text.ts";

/** See {@link ChatTokenizer}. Made by `loadTokenizer` and `createTokenizer`. */
export class BpeChatTokenizer implements ChatTokenizer {
  readonly vocabularySize: number;
  readonly maxTokenBytes: number;
  readonly eosTokenIds: readonly number[];
  readonly specialTokenIds: ReadonlySet<number>;
  readonly byteTokenIds: ReadonlySet<number>;
  readonly hasChatTemplate: boolean;
  readonly #data: TokenizerData;
  readonly #texts: TextTable;
  readonly #wordEncoder: WordEncoder;
  readonly #encoder: PipelineEncoder;
  /** Encodes text that continues other text; made when it is first needed. */
  #continuation: PipelineEncoder | null = null;
  /** Contents of the added tokens by id. */
  readonly #addedTexts: ReadonlyMap<number, string>;
  /** Finds the added tokens that end a continuation; null if text after them is encoded like a continuation. */
  readonly #restartFinder: AddedTokenFinder | null;
  readonly #template: ChatTemplate | undefined;
  readonly #toolTemplate: ChatTemplate | undefined;

  /**
   * @throws DataError `E_DATA` for a chat template that does not parse.
   * @throws UnsupportedError `E_UNSUPPORTED` naming a part of the pipeline that is not supported.
   */
  constructor(data: TokenizerData) {
    this.#data = data;
    this.vocabularySize = data.vocabularySize;
    this.maxTokenBytes = data.maxTokenBytes;
    this.eosTokenIds = data.eosTokenIds;
    this.specialTokenIds = new Set(data.addedTokens.filter((token) => token.special).map((token) => token.id));
    this.#addedTexts = new Map(data.addedTokens.map((token) => [token.id, token.content]));
    this.#texts = new TextTable(data.texts);
    this.byteTokenIds = this.#byteTokens();
    this.#wordEncoder = new WordEncoder({ texts: this.#texts, merges: new MergeTable(data.merges) }, data.model);
    this.#encoder = new PipelineEncoder(this.#wordEncoder, data.pipelines.whole, data.addedTokens);
    this.#restartFinder = data.pipelines.restartsAfterTokens
      ? new AddedTokenFinder(data.addedTokens.map((token) => [token.content, token]))
      : null;
    const { templates } = data;
    this.#template = compiled(templates.file, templates.default);
    this.#toolTemplate = compiled(templates.file, templates.toolUse);
    this.hasChatTemplate = this.#template !== undefined;
  }

  encode(text: string, options: EncodeOptions = {}): Int32Array {
    const ids = new IdList();
    const { addSpecialTokens = false, follows, tail } = options;
    const { before, after } = addSpecialTokens ? this.#data.around : { before: [], after: [] };
    for (const token of before) ids.push(this.#addedId(token));
    const parts = this.#parts(text, follows);
    if (tail === undefined) {
      for (const [encoder, part] of parts) encoder.encode(part, ids);
    } else {
      // From the end, so that only as much text is encoded as the last ids need.
      const lastIds = new Tail(tail);
      for (const [encoder, part] of parts.toReversed()) if (!lastIds.isFull) encoder.encodeTail(part, lastIds);
      lastIds.appendTo(ids);
    }
    for (const token of after) ids.push(this.#addedId(token));
    return ids.toArray(tail === undefined ? 0 : Math.max(0, ids.length - tail));
  }

  /**
   * Returns the parts of a text with the encoder of each. A text that continues other text is a continuation up to its end, or up to its
   * first added token if the tokenizer encodes text after added tokens like the beginning of a text.
   */
  #parts(text: string, follows: EncodeOptions["follows"]): (readonly [PipelineEncoder, string])[] {
    const { continuation, restartsAfterTokens } = this.#data.pipelines;
    const isLikeBeginning = follows === undefined || (follows === "token" && restartsAfterTokens);
    if (continuation === null || isLikeBeginning) return [[this.#encoder, text]];
    this.#continuation ??= new PipelineEncoder(this.#wordEncoder, continuation, this.#data.addedTokens);
    const restart = this.#restartFinder?.split(text).find(({ token }) => token !== null)?.start ?? text.length;
    return [
      [this.#continuation, text.slice(0, restart)],
      [this.#encoder, text.slice(restart)],
    ];
  }

  /** Returns the id of a token that the post-processor adds. */
  #addedId(token: string): number {
    const { addedTokens, directory } = this.#data;
    const id = addedTokens.find(({ content }) => content === token)?.id ?? this.#texts.findText(token);
    if (id >= 0) return id;
    throw new DataError(`The post-processor of ${directory} adds ${JSON.stringify(token)}, which is not in the vocabulary.`);
  }

  decode(ids: ArrayLike<number>, options: { readonly skipSpecialTokens?: boolean | undefined } = {}): string {
    const pieces: Uint8Array[] = [];
    for (let index = 0; index < ids.length; index++) {
      const id = ids[index] as number;
      const bytes = this.tokenBytes(id);
      if (options.skipSpecialTokens !== true || !this.specialTokenIds.has(id)) pieces.push(bytes);
    }
    return utf8(Buffer.concat(pieces));
  }

  tokenBytes(id: number): Uint8Array {
    if (!Number.isInteger(id) || id < 0 || id >= this.vocabularySize) {
      throw new ArgumentError(`Expected a token id in [0, ${this.vocabularySize}), got ${id}.`);
    }
    const { kind } = this.#data;
    const added = this.#addedTexts.get(id);
    if (added === undefined) return bytesOfText(this.#texts.text(id), kind);
    // In the style of SentencePiece, added tokens may be runs of spaces too (`▁▁`).
    return kind === "byte-fallback" ? bytesOfPiece(added) : new TextEncoder().encode(added);
  }

  tokenText(id: number): string {
    return utf8(this.tokenBytes(id));
  }

  renderChat(messages: readonly ChatMessage[], options: RenderChatOptions = {}): string {
    const { tools, template } = this.#templateFor(options.tools, options.template);
    return template.render({
      documents: null,
      ...this.#data.templateVariables,
      ...options.variables,
      messages: templateMessages(supportTools(messages, tools ?? null, template.forms), template.forms),
      tools,
      add_generation_prompt: options.addGenerationPrompt ?? true,
    });
  }

  readsVariable(name: string, options: Pick<RenderChatOptions, "tools" | "template"> = {}): boolean {
    return this.#templateFor(options.tools, options.template).template.names.has(name);
  }

  renderTraining(messages: readonly ChatMessage[], options: RenderTrainingOptions = {}): RenderedTraining {
    const closings = this.eosTokenIds.map((id) => this.tokenText(id));
    const { tools, variables } = options;
    const segments = trainingSegments(
      messages,
      (prefix, { addGenerationPrompt }) => this.renderChat(prefix, { tools, variables, addGenerationPrompt }),
      closings,
      options.isTrained,
    );
    const ids = new IdList();
    const trainedRanges: (readonly [start: number, end: number])[] = [];
    let textBefore = "";
    let missingBytes = 0;
    let missingTrainedBytes = 0;
    for (const { text, trained } of segments) {
      const [start, missingBefore] = [ids.length, this.#wordEncoder.missingBytes];
      ids.append(this.encode(text, { follows: this.#endKind(textBefore) }));
      const missing = this.#wordEncoder.missingBytes - missingBefore;
      missingBytes += missing;
      if (trained) {
        missingTrainedBytes += missing;
        trainedRanges.push([start, ids.length]);
      }
      textBefore += text;
    }
    const mask = new Uint8Array(ids.length);
    for (const [start, end] of trainedRanges) mask.fill(1, start, end);
    return { ids: ids.toArray(), mask, missingBytes, missingTrainedBytes };
  }

  /** Returns the option `follows` for text after `text`: the kind of its end; undefined if it is empty. */
  #endKind(text: string): EncodeOptions["follows"] {
    if (text === "") return undefined;
    for (const content of this.#addedTexts.values()) if (text.endsWith(content)) return "token";
    return "text";
  }

  /**
   * Returns the template for a conversation: from `source` if given, else the model's own for conversations with or without tools. Also
   * returns the tools that the template receives: null instead of none or an empty list.
   */
  #templateFor(
    given: RenderChatOptions["tools"],
    source?: string,
  ): { readonly tools: RenderChatOptions["tools"]; readonly template: ChatTemplate } {
    const tools = given === undefined || given === null || given.length === 0 ? null : given;
    if (source !== undefined) return { tools, template: compileTemplate(source) };
    const template = tools === null ? this.#template : (this.#toolTemplate ?? this.#template);
    if (template === undefined) {
      throw new UnsupportedError(
        `The model in ${this.#data.directory} has no chat template. Add \`chat_template\` to its tokenizer_config.json, or a chat_template.jinja file.`,
      );
    }
    return { tools, template };
  }

  /** Returns the ids of the tokens of one byte (`<0x0A>`) that byte fallback uses; none for a byte-level tokenizer. */
  #byteTokens(): ReadonlySet<number> {
    if (this.#data.kind === "byte-level") return new Set();
    const ids = Array.from({ length: 256 }, (_, byte) => this.#texts.findText(byteToken(byte)));
    return new Set(ids.filter((id) => id >= 0 && !this.#addedTexts.has(id)));
  }
}

/** Compiles a template of the file `name`, which its error names; undefined without a template. */
function compiled(name: string, source: string | undefined): ChatTemplate | undefined {
  if (source === undefined) return undefined;
  try {
    return compileTemplate(source);
  } catch (error) {
    throw new DataError(`${name}: ${(error as Error).message}`, { cause: error });
  }
}

/** Decodes UTF-8; a byte order mark stays in the text. */
function utf8(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}
