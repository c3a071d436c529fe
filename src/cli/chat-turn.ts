/** One turn of `whetstone chat`: streams an answer to standard output and returns it for the conversation. */
import type { ChatCompletionRequest, LogprobEntry, RequestMessage, ToolCall } from "../base/schema/index.ts";
import { logLine, printLine, printText } from "../base/util/output.ts";
import type { Connected } from "./connected.ts";
import { table } from "./table.ts";

/** Request of a turn without its messages. */
export type ChatSettings = Omit<ChatCompletionRequest, "messages" | "stream">;

/** Message of the model that a turn has streamed. */
export interface TurnAnswer extends RequestMessage {
  readonly role: "assistant";
  readonly content: string;
  readonly tool_calls?: ToolCall[];
}

/** Conversation up to a turn of the model. */
export interface ChatTurn {
  readonly settings: ChatSettings;
  readonly messages: readonly RequestMessage[];
  /** Whether each chunk is printed as a line of JSON. */
  readonly isJson: boolean;
}

/**
 * Streams one answer to standard output: text as it arrives, then tool calls and log-probabilities; or its chunks as JSON.
 *
 * @returns the message, for the conversation.
 */
export async function printAnswer({ service, signal }: Connected, { settings, messages, isJson }: ChatTurn): Promise<TurnAnswer> {
  let content = "";
  let finishReason: string | null = null;
  /** Tool calls, of which the parts received so far are joined. */
  const calls: { id: string; type: "function"; function: { name: string; arguments: string } }[] = [];
  const logprobs: LogprobEntry[] = [];
  for await (const chunk of service.chat.completions.create({ ...settings, messages: [...messages], stream: true }, { signal })) {
    if (isJson) printLine(JSON.stringify(chunk));
    const [choice] = chunk.choices;
    if (choice === undefined) continue;
    const { delta } = choice;
    if (!isJson) printText((delta.reasoning ?? "") + (delta.content ?? ""));
    content += delta.content ?? "";
    for (const { index, id, function: part } of delta.tool_calls ?? []) {
      calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
      const call = calls[index];
      call.id += id ?? "";
      call.function.name += part?.name ?? "";
      call.function.arguments += part?.arguments ?? "";
    }
    logprobs.push(...(choice.logprobs?.content ?? []));
    finishReason = choice.finish_reason ?? finishReason;
  }
  if (!isJson) {
    printText("\n");
    for (const call of calls) printLine(`[tool call] ${describeCall(call)}`);
    if (logprobs.length > 0) for (const line of table(logprobs, LOGPROB_COLUMNS)) printLine(line);
    if (finishReason === "length") logLine("The answer ended at its token limit; --max-tokens changes it");
  }
  return { role: "assistant", content, ...(calls.length > 0 ? { tool_calls: calls } : {}) };
}

/** Returns a tool call as `name(arguments)`. */
export function describeCall({ function: { name, arguments: text } }: ToolCall): string {
  return `${name}(${text ?? ""})`;
}

/** Formats the probability of a log-probability in percent. */
const percent = (logprob: number): string => `${(100 * Math.exp(logprob)).toFixed(1)} %`;

/** Columns of the sampled tokens. */
const LOGPROB_COLUMNS = [
  { title: "TOKEN", cell: ({ token }: LogprobEntry) => JSON.stringify(token) },
  { title: "LOGPROB", cell: ({ logprob }: LogprobEntry) => logprob.toFixed(4), align: "right" },
  { title: "PROBABILITY", cell: ({ logprob }: LogprobEntry) => percent(logprob), align: "right" },
  {
    title: "ALTERNATIVES",
    cell: ({ token, top_logprobs: alternatives }: LogprobEntry) =>
      alternatives
        .filter((alternative) => alternative.token !== token)
        .map((alternative) => `${JSON.stringify(alternative.token)} ${percent(alternative.logprob)}`)
        .join("  "),
  },
] as const;
