import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import type { JudgeModel } from "../../src/library/judge/index.ts";
import type { ChatCompletion, ChatCompletionRequest, RequestMessage } from "../../src/base/schema/index.ts";
import type { GroupReward } from "../../src/base/trajectory/group-scoring.ts";
import { normalizedGroupRewards, scoredGroup } from "../../src/base/trajectory/group-scoring.ts";
import { Trajectory, TrajectoryGroup } from "../../src/base/trajectory/index.ts";

export const PROMPT: readonly RequestMessage[] = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "Write a number." },
];

/** Returns a finished rollout with the answer `text` to {@link PROMPT}. */
export function rollout(text: string, change: object = {}): Trajectory {
  return Trajectory.fromJSON({ messages_and_choices: [...PROMPT, choiceOf(text)], ...change });
}

export function choiceOf(text: string) {
  return { index: 0, message: { role: "assistant", content: text }, finish_reason: "stop" };
}

export interface SeenCandidate {
  readonly id: string;
  readonly content: { readonly messages: readonly RequestMessage[]; readonly additional_conversations?: readonly unknown[] };
  /** Text of the last message. */
  readonly text: string;
}

/** Returns the text of the user's first message of a request, which has the candidates. */
export function questionOf({ messages }: ChatCompletionRequest): string {
  return String(messages[1]?.content);
}

/** Returns the candidates of a request, in the order shown. */
export function candidatesIn(request: ChatCompletionRequest): SeenCandidate[] {
  const blocks = questionOf(request).matchAll(/^<candidate id="([a-z]+)">\n(.*)\n<\/candidate id="\1">$/gm);
  return [...blocks].map(([, id = "", json = ""]) => {
    const content = JSON.parse(json) as SeenCandidate["content"];
    return { id, content, text: String(content.messages.at(-1)?.content ?? "") };
  });
}

export interface Entry {
  readonly id: unknown;
  readonly score?: unknown;
  readonly explanation?: string;
}

/** Returns the entries of a right answer: the score of each candidate by `quality` of its text. */
export function rightEntries(request: ChatCompletionRequest, quality: (text: string) => number): Entry[] {
  return candidatesIn(request).map(({ id, text }) => ({ id, explanation: `it says ${text}`, score: quality(text) }));
}

export function scoresText(entries: readonly Entry[]): string {
  return JSON.stringify({ scores: entries });
}

export function completionOf(text: string, change: Partial<ChatCompletion> = {}): ChatCompletion {
  return {
    id: "chatcmpl-1",
    object: "chat.completion",
    created: 0,
    model: "judge",
    choices: [{ index: 0, message: { role: "assistant", content: text }, finish_reason: "stop" }],
    usage: { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 },
    ...change,
  };
}

export interface RecordedJudge extends JudgeModel {
  readonly requests: ChatCompletionRequest[];
}

/** Creates a judge in this process that answers with `answer`. */
export function judgeOf(
  answer: (request: ChatCompletionRequest, index: number) => string | Promise<string>,
  change: Partial<JudgeModel> = {},
): RecordedJudge {
  const requests: ChatCompletionRequest[] = [];
  return {
    id: "judge",
    requests,
    async complete(request) {
      requests.push(request);
      return completionOf(await answer(request, requests.length - 1));
    },
    ...change,
  };
}

/** Creates a judge that scores every candidate by its text: "37" scores 0.37. */
export function fairJudge(change: Partial<JudgeModel> = {}): RecordedJudge {
  return judgeOf((request) => scoresText(rightEntries(request, hundredth)), change);
}

export function hundredth(text: string): number {
  return Number(text) / 100;
}

/** Applies a group reward to rollouts, as a run does. */
export function judged(reward: GroupReward<unknown>, trajectories: readonly Trajectory[], seed = 1): Promise<TrajectoryGroup> {
  const group = new TrajectoryGroup({ trajectories, metadata: { seed, scenario_index: 0 } });
  return scoredGroup(group, {
    groupRewards: normalizedGroupRewards([reward], "the test", []),
    includesOwn: false,
    scenario: null,
    subject: () => "the test",
    signal: new AbortController().signal,
  });
}

export type Reply =
  | "hang"
  | "close"
  | { readonly status?: number; readonly body: unknown; readonly headers?: Readonly<Record<string, string>> };

export interface JudgeServer {
  readonly baseUrl: string;
  readonly requests: { readonly body: ChatCompletionRequest; readonly headers: IncomingMessage["headers"]; readonly url: string }[];
}

/** Starts a chat completions endpoint on a free port; it is closed at the end of the test. */
export async function judgeServer(
  reply: (request: ChatCompletionRequest, index: number, headers: IncomingMessage["headers"]) => Reply | Promise<Reply>,
): Promise<JudgeServer> {
  const requests: JudgeServer["requests"] = [];
  const server = createServer((incoming, response) => void answer(incoming, response));
  async function answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const body = JSON.parse(Buffer.concat(chunks).toString("utf8")) as ChatCompletionRequest;
    requests.push({ body, headers: incoming.headers, url: incoming.url ?? "" });
    const result = await reply(body, requests.length - 1, incoming.headers);
    if (result === "hang") return;
    if (result === "close") {
      incoming.socket.destroy();
      return;
    }
    response.writeHead(result.status ?? 200, { "content-type": "application/json", ...result.headers });
    response.end(typeof result.body === "string" ? result.body : JSON.stringify(result.body));
  }
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => void server.close(resolve));
  });
  return { baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, requests };
}
