/** Creation of the assembler for the answer to a request. */
import { HttpError } from "../client/index.ts";
import { toChunk } from "../client/sse.ts";
import type { DialectName, Members } from "../../dialects/index.ts";
import { CompletionAssembler } from "../../base/trajectory/assemble.ts";
import type { AnswerAssembler } from "./answer-assembler.ts";
import { MessageAssembler } from "./message-assembler.ts";
import { TextAssembler } from "./text-assembler.ts";

/** Creates the assembler for the answer to a request. */
export function createAssembler(dialect: DialectName, body: Members): AnswerAssembler {
  switch (dialect) {
    case "chat":
      return chatAssembler(countOf(body["n"]));
    case "completions":
      return new TextAssembler(promptsIn(body["prompt"]) * countOf(body["n"]));
    case "messages":
      return new MessageAssembler();
    default:
      return responseAssembler();
  }
}

function countOf(n: unknown): number {
  return typeof n === "number" ? n : 1;
}

function promptsIn(prompt: unknown): number {
  return Array.isArray(prompt) && typeof prompt[0] !== "number" ? prompt.length : 1;
}

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

/** The last event of a response contains the whole response. */
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
