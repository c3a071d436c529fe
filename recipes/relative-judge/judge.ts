import type { JudgeModel } from "whetstone/judge";
import { quality } from "./task.ts";

/** Candidate in a request of the judge. */
interface Candidate {
  readonly id: string;
  readonly text: string;
}

/**
 * Creates a judge that reads a request as a language model would and scores each candidate by the hidden quality. `isShuffled` permutes
 * the scores of each request among its candidates: the control, in which scores say nothing about the candidates.
 */
export function scriptedJudge(isShuffled = false): JudgeModel {
  return {
    id: isShuffled ? "scripted-shuffled" : "scripted",
    complete({ messages }) {
      const question = String(messages[1]?.content);
      const word = /write (\w+) backwards/.exec(String(messages[0]?.content))?.[1] ?? "";
      const candidates = candidatesIn(question);
      const scored = isShuffled ? shuffled(candidates) : candidates;
      const scores = candidates.map(({ id }, index) => ({ id, explanation: "", score: quality(scored[index]!.text, word) }));
      return Promise.resolve({
        id: "scripted",
        object: "chat.completion",
        created: 0,
        model: "scripted",
        choices: [{ index: 0, message: { role: "assistant", content: JSON.stringify({ scores }) }, finish_reason: "stop" }],
        usage: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
      });
    },
  };
}

/** Returns the candidates of a request with the text of their last message. */
export function candidatesIn(question: string): Candidate[] {
  return [...question.matchAll(/^<candidate id="(\w+)">\n(.*)\n<\/candidate/gm)].map(([, id = "", json = ""]) => {
    const { messages } = JSON.parse(json) as { readonly messages: readonly { readonly content?: string | null }[] };
    return { id, text: messages.at(-1)?.content ?? "" };
  });
}

/** Returns the candidates in the order of their ids read backwards: random, and the same whenever the request is repeated. */
function shuffled(candidates: readonly Candidate[]): Candidate[] {
  const backwards = ({ id }: Candidate) => [...id].reverse().join("");
  return candidates.toSorted((a, b) => (backwards(a) < backwards(b) ? -1 : 1));
}
