/** Tokenizers and chat templates of models in Hugging Face layout. */

export type {
  ChatContentPart,
  ChatMessage,
  ChatTokenizer,
  ChatToolCall,
  EncodeOptions,
  RenderChatOptions,
  RenderedTraining,
  RenderTrainingOptions,
} from "./chat-tokenizer.ts";
export { createTokenizer, loadTokenizer, type LoadTokenizerOptions, readTokenizerData } from "./load.ts";
export type { TokenizerData } from "./tokenizer-data.ts";
export { createDetokenizer, type Detokenizer } from "./detokenizer.ts";
export { strip } from "./jinja/index.ts";
