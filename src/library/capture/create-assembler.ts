/** Choice of the assembler for a streamed answer, by the API dialect of its request. */
import { HttpError } from "../client/index.ts";
import { toChunk } from "../client/sse.ts";
import type { DialectName, Members } from "../../dialects/index.ts";
import { CompletionAssembler } from "../../base/trajectory/assemble.ts";
import type { AnswerAssembler } from "./answer-assembler.ts";
import { MessageAssembler } from "./message-assembler.ts";
import { TextAssembler } from "./text-assembler.ts";

/** Creates the assembler for the streamed answer to a request. Its `body` states the number of choices that complete the stream. */
export function createAssembler(dialect: DialectName, body: Members): AnswerAssembler {
  switch (dialect) {
    case "chat":
      return chatAssembler(countOf(body["n"]));
    case "completions":
      return new TextAssembler(promptsIn(body["prompt"]) * countOf(body["n"]));
    case "messages":
      return new MessageAssembler();
    default:
      // Responses. Streams of `generate` are not recorded: this assembler finds no response in them.
      return responseAssembler();
  }
}

/** Returns the option `n`, the number of choices of a prompt. */
function countOf(n: unknown): number {
  return typeof n === "number" ? n : 1;
}

/** Returns the number of prompts of a text completion. A text is one prompt, and so is a list of numbers: its token ids. */
function promptsIn(prompt: unknown): number {
  return Array.isArray(prompt) && typeof prompt[0] !== "number" ? prompt.length : 1;
}

/** Creates the assembler of chat completions with `n` choices. */
function chatAssembler(n: number): AnswerAssembler {
  const chunks = new CompletionAssembler();
  return {
    push: (event) => chunks.push(toChunk(event)),
    get isComplete() {
      return chunks.isComplete(n);
    },
    toAnswer: () => chunks.toCompletion(),
  };
}

/** Event of a streamed response, with the fields used here. */
interface ResponseEvent {
  readonly type?: unknown;
  readonly response?: unknown;
}

/** Creates the assembler of the Responses API, whose last event contains the whole response. */
function responseAssembler(): AnswerAssembler {
  let answer: unknown = null;
  return {
    push(event) {
      const { type, response } = event as ResponseEvent;
      if (type === "error" || type === "response.failed") throw new HttpError("The stream failed", { status: null });
      if (type === "response.completed" || type === "response.incomplete") answer = response ?? null;
    },
    get isComplete() {
      return answer !== null;
    },
    toAnswer: () => answer,
  };
}
