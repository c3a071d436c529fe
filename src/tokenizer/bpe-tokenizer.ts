/** A BPE tokenizer with its chat template, over the Hugging Face JavaScript tokenizer. */

import { Tokenizer } from "@huggingface/tokenizers";
import { join } from "node:path";
import { ArgumentError, DataError, UnsupportedError } from "../errors.ts";
import { compileTemplate, type ChatTemplate } from "./chat-template.ts";
import type {
  ChatMessage,
  ChatTokenizer,
  EncodeOptions,
  RenderChatOptions,
  RenderedTraining,
  RenderTrainingOptions,
} from "./chat-tokenizer.ts";
import type { TokenizerFile } from "./files.ts";
import { templateMessages } from "./template-messages.ts";
import { supportTools } from "./tool-messages.ts";
import { trainingSegments } from "./training-text.ts";

/** Kind of a BPE tokenizer: how its tokens stand for bytes, and how text is encoded that continues other text. */
export interface Alphabet {
  /** Bytes of a token of the vocabulary; undefined for literal text. */
  readonly bytesOf: (token: string) => Uint8Array | undefined;
  /** Whether a token stands for one byte of a character outside the vocabulary. */
  readonly isByteToken: (token: string) => boolean;
  /** File for text that continues other text; undefined if that is encoded like any text. */
  readonly continuation: TokenizerFile | undefined;
  /** Whether text after an added token is encoded like the beginning of a text. */
  readonly restartsAfterTokens: boolean;
}

/** Parsed files of a tokenizer's directory. */
export interface BpeTokenizerParts {
  readonly alphabet: Alphabet;
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
export class BpeChatTokenizer implements ChatTokenizer {
  readonly vocabularySize: number;
  readonly eosTokenIds: readonly number[];
  readonly specialTokenIds: ReadonlySet<number>;
  readonly byteTokenIds: ReadonlySet<number>;
  readonly hasChatTemplate: boolean;
  readonly #library: Tokenizer;
  /** Encodes text that continues other text; made when it is first needed. */
  readonly #continuations = new Map<TokenizerFile, Tokenizer>();
  readonly #addedToken: RegExp;
  readonly #parts: BpeTokenizerParts;
  readonly #addedTokens: ReadonlyMap<number, string>;
  readonly #bytes = new Map<number, Uint8Array>();

  /** @throws DataError `E_DATA` when the files contradict each other. */
  constructor(parts: BpeTokenizerParts) {
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

    const contents = [...this.#addedTokens.values()].toSorted((a, b) => b.length - a.length);
    this.#addedToken = new RegExp(contents.length === 0 ? "(?!)" : contents.map(escaped).join("|"));

    let needed = 0;
    const byteTokenIds = new Set<number>();
    for (const [token, id] of this.#library.get_vocab(true)) {
      needed = Math.max(needed, id + 1);
      if (!this.#addedTokens.has(id) && parts.alphabet.isByteToken(token)) byteTokenIds.add(id);
    }
    this.byteTokenIds = byteTokenIds;
    this.vocabularySize = parts.vocabularySize ?? needed;
    if (this.vocabularySize < needed) {
      throw new DataError(
        `${join(directory, "config.json")}: \`vocab_size\` is ${this.vocabularySize}, but tokenizer.json has ids up to ${needed - 1}.`,
      );
    }
    this.eosTokenIds = this.#resolveEos();
  }

  encode(text: string, options: EncodeOptions = {}): Int32Array {
    const { addSpecialTokens = false, follows } = options;
    const { continuation, restartsAfterTokens } = this.#parts.alphabet;
    if (continuation === undefined || follows === undefined || (follows === "token" && restartsAfterTokens)) {
      return this.#encode(this.#library, text, addSpecialTokens);
    }
    const library = this.#continuations.get(continuation) ?? new Tokenizer(continuation, this.#parts.config);
    this.#continuations.set(continuation, library);
    const restart = restartsAfterTokens ? text.search(this.#addedToken) : -1;
    const first = this.#encode(library, restart < 0 ? text : text.slice(0, restart), addSpecialTokens);
    return restart < 0 ? first : Int32Array.from([...first, ...this.#encode(this.#library, text.slice(restart), false)]);
  }

  #encode(library: Tokenizer, text: string, addSpecialTokens: boolean): Int32Array {
    if (text === "" && !addSpecialTokens) return new Int32Array(0);
    const { ids, tokens } = library.encode(text, { add_special_tokens: addSpecialTokens });
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
          : (this.#parts.alphabet.bytesOf(token) ?? encoder.encode(token))
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
      documents: null,
      ...this.#parts.templateVariables,
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
    const segments = trainingSegments(
      messages,
      (prefix, addGenerationPrompt) => this.renderChat(prefix, { tools: options.tools, variables: options.variables, addGenerationPrompt }),
      closings,
      options.isTrained,
    );
    let done = "";
    const encoded = segments.map(({ text }) => {
      const ids = this.encode(text, { follows: this.#endOf(done) });
      done += text;
      return ids;
    });
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

  /** Returns what text after `text` follows. */
  #endOf(text: string): EncodeOptions["follows"] {
    if (text === "") return undefined;
    for (const content of this.#addedTokens.values()) if (text.endsWith(content)) return "token";
    return "text";
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

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

function utf8(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}
