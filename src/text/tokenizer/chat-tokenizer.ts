/** Interface of a model's tokenizer: lossless conversion of text to tokens and back, and of conversations to text. */

/** A part of a message's content. Only text can be rendered. */
export type ChatContentPart = string | { readonly type?: string | undefined; readonly text?: string | null | undefined };

/** A tool call of an assistant message. `arguments` is the JSON text of an object. */
export interface ChatToolCall {
  readonly id?: string | null | undefined;
  readonly type?: string | undefined;
  readonly function: { readonly name: string; readonly arguments?: unknown };
}

/** A message of a conversation, in the names of the wire. Keys not listed reach the template as they are. */
export interface ChatMessage {
  readonly role: string;
  readonly content?: string | readonly ChatContentPart[] | null | undefined;
  readonly tool_calls?: readonly ChatToolCall[] | null | undefined;
  readonly reasoning?: string | null | undefined;
  readonly [key: string]: unknown;
}

/** Options of {@link ChatTokenizer.renderChat}. */
export interface RenderChatOptions {
  /** Tool definitions in the wire's shape; absent, null or empty = the template sees none. */
  readonly tools?: readonly unknown[] | null | undefined;
  /** Whether the text ends with the header of the assistant's turn. @default true */
  readonly addGenerationPrompt?: boolean | undefined;
  /** More template variables. They never replace `messages`, `tools` or `add_generation_prompt`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
  /** The source of a template to use instead of the model's; it runs with the same limits. @default the model's own */
  readonly template?: string | undefined;
}

/** Options of {@link ChatTokenizer.renderTraining}. */
export interface RenderTrainingOptions {
  /** Tool definitions in the wire's shape; absent, null or empty = the template sees none. */
  readonly tools?: readonly unknown[] | null | undefined;
  /** More template variables, as for {@link ChatTokenizer.renderChat}. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
  /** Whether the assistant message at an index of `messages` is trained; others are context. @default all are */
  readonly isTrained?: ((index: number) => boolean) | undefined;
}

/** Options of {@link ChatTokenizer.encode}. */
export interface EncodeOptions {
  /** Whether to add the tokens of the post-processor (a BOS). Chat templates contain them. @default false */
  readonly addSpecialTokens?: boolean | undefined;
  /**
   * Kind of the part before the text, if the text is encoded in parts: other text, or an added token. A tokenizer in the style of
   * SentencePiece puts a space in front of a text, which must not come between its parts. @default nothing: the text is whole
   */
  readonly follows?: "text" | "token" | undefined;
  /**
   * Number of ids to return from the end of the text, at most. They equal the last ids of the whole text; words before them are not
   * encoded. A word of more than 524,288 characters among them is an `ArgumentError`, because it can only be encoded as a whole.
   * @default all ids
   */
  readonly tail?: number | undefined;
}

/** A finished conversation as training sees it. */
export interface RenderedTraining {
  /** Shape `[T]`, token ids, up to the end of the last trained turn. */
  readonly ids: Int32Array;
  /** Shape `[T]`; 1 for tokens of assistant turns, including the closing token, else 0. */
  readonly mask: Uint8Array;
  /** Number of bytes of the text without a token: left out of `ids`, or part of an unknown token. */
  readonly missingBytes: number;
  /** `missingBytes` of the assistant turns. */
  readonly missingTrainedBytes: number;
}

/** A tokenizer with its chat template. Immutable; safe to share between requests. */
export interface ChatTokenizer {
  /** Number of rows of the model's embedding; every id is smaller. May exceed the number of tokens, because of padding rows. */
  readonly vocabularySize: number;
  /** Bytes of the longest token. */
  readonly maxTokenBytes: number;
  /** Ids that end a turn: the tokenizer's own first, then the ones in the generation config. Empty if the files name none. */
  readonly eosTokenIds: readonly number[];
  /** Ids of tokens that carry structure, not text; left out by `skipSpecialTokens`. */
  readonly specialTokenIds: ReadonlySet<number>;
  /** Ids of tokens that stand for one byte of a character outside the vocabulary; empty for byte-level tokenizers. */
  readonly byteTokenIds: ReadonlySet<number>;
  /** Whether the model has a chat template. Without one, {@link renderChat} needs the option `template`. */
  readonly hasChatTemplate: boolean;

  /**
   * Encodes a text as token ids. Text that spells an added token becomes that token, as in the model's own tokenizer. Bytes without a token
   * become the unknown token, or are left out if the vocabulary has none.
   *
   * @throws DataError `E_DATA` when the post-processor adds a token that does not exist.
   */
  encode(text: string, options?: EncodeOptions): Int32Array;

  /**
   * Decodes token ids: their bytes as UTF-8, with U+FFFD for bytes that are not valid UTF-8. Tokens of SentencePiece keep the space in
   * front of the first word, because sampled tokens continue a prompt.
   *
   * @param options - `skipSpecialTokens`: leave special tokens out. Default false.
   * @throws ArgumentError `E_ARGUMENT` for an id outside the vocabulary.
   */
  decode(ids: ArrayLike<number>, options?: { readonly skipSpecialTokens?: boolean | undefined }): string;

  /**
   * Returns the exact bytes of one token, possibly a part of a character. Empty for a padding row of the embedding. Do not modify.
   *
   * @throws ArgumentError `E_ARGUMENT` for an id outside the vocabulary.
   */
  tokenBytes(id: number): Uint8Array;

  /** Decodes one token: {@link tokenBytes} as UTF-8, with U+FFFD for bytes that are not a whole character. */
  tokenText(id: number): string;

  /**
   * Renders a conversation by the chat template of the model.
   *
   * Messages get the forms that the template renders. Content parts become one text joined with newlines, unless the template reads parts;
   * absent content becomes `""`, unless the template renders tool calls only with null; a tool call's `arguments` become an object (absent
   * or empty: `{}`), or their JSON text if the template reads text.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` for a model without a chat template, or for content that is not text.
   * @throws DataError `E_DATA` when a tool call's `arguments` are not the JSON text of an object, or the given template does not parse.
   * @throws ArgumentError `E_ARGUMENT` with the template's message when it refuses the conversation or exceeds its limits.
   */
  renderChat(messages: readonly ChatMessage[], options?: RenderChatOptions): string;

  /**
   * Whether the template of a conversation reads a variable. A variable that it does not read cannot change the text; a variable that it
   * reads may have no effect on a particular conversation.
   *
   * @throws the errors of {@link renderChat} for a template that is missing or does not parse.
   */
  readsVariable(name: string, options?: Pick<RenderChatOptions, "tools" | "template">): boolean;

  /**
   * Renders a finished conversation to tokens, with a mask of the assistant turns.
   *
   * Each assistant turn is encoded as sampling meets it: the prompt with its generation header, then the completion up to
   * and including its closing token. The text after the last trained turn is left out: nothing in it is trained.
   *
   * @throws DataError `E_DATA` without an assistant message to train, or when the template rewrites earlier turns, so that a
   *   conversation does not extend its own beginning, or leaves out the tool calls of a trained message.
   * @throws the errors of {@link renderChat}.
   */
  renderTraining(messages: readonly ChatMessage[], options?: RenderTrainingOptions): RenderedTraining;
}
