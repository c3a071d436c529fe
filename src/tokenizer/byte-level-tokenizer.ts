/** A byte-level BPE tokenizer with its chat template, over the Hugging Face JavaScript tokenizer. */

import { Tokenizer } from "@huggingface/tokenizers";
import { join } from "node:path";
import { ArgumentError, DataError, UnsupportedError } from "../errors.ts";
import { bytesOfToken } from "./byte-alphabet.ts";
import { compileTemplate, type ChatTemplate } from "./chat-template.ts";
import type { ChatMessage, ChatTokenizer, RenderChatOptions, RenderedTraining, RenderTrainingOptions } from "./chat-tokenizer.ts";
import type { TokenizerFile } from "./files.ts";
import { templateMessages } from "./template-messages.ts";
import { trainingSegments } from "./training-text.ts";

/** What the files of a directory say, parsed. */
export interface ByteLevelTokenizerParts {
  /** Where the files are; for messages. */
  readonly directory: string;
  readonly file: TokenizerFile;
  readonly config: Readonly<Record<string, unknown>>;
  /** The model's; must hold every token. Absent = as many as the tokenizer needs. */
  readonly vocabularySize: number | undefined;
  readonly eosToken: string | undefined;
  readonly eosIds: readonly number[];
  readonly template: ChatTemplate | undefined;
  /** Used instead of `template` when the conversation has tools. */
  readonly toolTemplate: ChatTemplate | undefined;
  readonly templateVariables: Readonly<Record<string, string | undefined>>;
}

/** See {@link ChatTokenizer}. Made by `loadTokenizer`. */
export class ByteLevelChatTokenizer implements ChatTokenizer {
  readonly vocabularySize: number;
  readonly eosTokenIds: readonly number[];
  readonly specialTokenIds: ReadonlySet<number>;
  readonly hasChatTemplate: boolean;
  readonly #library: Tokenizer;
  readonly #parts: ByteLevelTokenizerParts;
  readonly #addedTokens: ReadonlyMap<number, string>;
  readonly #bytes = new Map<number, Uint8Array>();

  /** @throws DataError `E_DATA` when the files contradict each other. */
  constructor(parts: ByteLevelTokenizerParts) {
    const { directory, file } = parts;
    try {
      this.#library = new Tokenizer(file, parts.config);
    } catch (error) {
      throw new DataError(`${join(directory, "tokenizer.json")}: ${(error as Error).message}`, { cause: error });
    }
    this.#parts = parts;
    this.#addedTokens = new Map(file.added_tokens.map((token) => [token.id, token.content]));
    this.specialTokenIds = new Set(file.added_tokens.filter((token) => token.special).map((token) => token.id));
    this.hasChatTemplate = parts.template !== undefined;

    let needed = 0;
    for (const id of this.#library.get_vocab(true).values()) needed = Math.max(needed, id + 1);
    this.vocabularySize = parts.vocabularySize ?? needed;
    if (this.vocabularySize < needed) {
      throw new DataError(
        `${join(directory, "config.json")}: \`vocab_size\` is ${this.vocabularySize}, but tokenizer.json has ids up to ${needed - 1}.`,
      );
    }
    this.eosTokenIds = this.#resolveEos();
  }

  encode(text: string, options: { readonly addSpecialTokens?: boolean | undefined } = {}): Int32Array {
    if (text === "" && options.addSpecialTokens !== true) return new Int32Array(0);
    const { ids, tokens } = this.#library.encode(text, { add_special_tokens: options.addSpecialTokens ?? false });
    const result = new Int32Array(ids.length);
    for (const [index, id] of (ids as readonly (number | undefined)[]).entries()) {
      if (id === undefined) {
        throw new DataError(
          `The post-processor of ${this.#parts.directory} adds ${JSON.stringify(tokens[index])}, which is not in the vocabulary.`,
        );
      }
      result[index] = id;
    }
    return result;
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
    const known = this.#bytes.get(id);
    if (known !== undefined) return known;
    if (!Number.isInteger(id) || id < 0 || id >= this.vocabularySize) {
      throw new ArgumentError(`Expected a token id in [0, ${this.vocabularySize}), got ${id}.`);
    }
    const added = this.#addedTokens.get(id);
    const token = this.#library.id_to_token(id);
    const encoder = new TextEncoder();
    const bytes =
      added === undefined
        ? token === undefined
          ? new Uint8Array(0)
          : (bytesOfToken(token) ?? encoder.encode(token))
        : encoder.encode(added);
    this.#bytes.set(id, bytes);
    return bytes;
  }

  tokenText(id: number): string {
    return utf8(this.tokenBytes(id));
  }

  renderChat(messages: readonly ChatMessage[], options: RenderChatOptions = {}): string {
    const { tools, template } = this.#templateFor(options.tools, options.template);
    return template.render({
      ...this.#parts.templateVariables,
      ...options.variables,
      messages: templateMessages(messages),
      tools,
      add_generation_prompt: options.addGenerationPrompt ?? true,
    });
  }

  renderTraining(messages: readonly ChatMessage[], options: RenderTrainingOptions = {}): RenderedTraining {
    const closings = this.eosTokenIds.map((id) => this.tokenText(id));
    const segments = trainingSegments(
      messages,
      (prefix, addGenerationPrompt) => this.renderChat(prefix, { tools: options.tools, addGenerationPrompt }),
      closings,
      options.isTrained,
    );
    const encoded = segments.map((segment) => this.encode(segment.text));
    const length = encoded.reduce((sum, part) => sum + part.length, 0);
    const ids = new Int32Array(length);
    const mask = new Uint8Array(length);
    let at = 0;
    for (const [index, part] of encoded.entries()) {
      ids.set(part, at);
      if (segments[index]?.trained === true) mask.fill(1, at, at + part.length);
      at += part.length;
    }
    return { ids, mask };
  }

  /** The template for a conversation with these tools, and the tools as the template is given them. */
  #templateFor(
    given: RenderChatOptions["tools"],
    source?: string,
  ): { readonly tools: RenderChatOptions["tools"]; readonly template: ChatTemplate } {
    const tools = given === undefined || given === null || given.length === 0 ? null : given;
    if (source !== undefined) return { tools, template: compileTemplate(source) };
    const template = tools === null ? this.#parts.template : (this.#parts.toolTemplate ?? this.#parts.template);
    if (template === undefined) {
      throw new UnsupportedError(
        `The model in ${this.#parts.directory} has no chat template. Add \`chat_template\` to its tokenizer_config.json, or a chat_template.jinja file.`,
      );
    }
    return { tools, template };
  }

  #resolveEos(): readonly number[] {
    const { directory, eosToken, eosIds } = this.#parts;
    const ids = new Set<number>();
    if (eosToken !== undefined) {
      const id = this.#library.token_to_id(eosToken);
      if (id === undefined) {
        throw new DataError(
          `${join(directory, "tokenizer_config.json")}: \`eos_token\` ${JSON.stringify(eosToken)} is not in tokenizer.json.`,
        );
      }
      ids.add(id);
    }
    for (const id of eosIds) {
      if (id >= this.vocabularySize) {
        throw new DataError(
          `${join(directory, "generation_config.json")}: \`eos_token_id\` ${id} is outside the vocabulary of ${this.vocabularySize}.`,
        );
      }
      ids.add(id);
    }
    return [...ids];
  }
}

function utf8(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}
