/** Reversing words: the model is asked for the letters of a word in reverse order. */
import { defineEnvironment, similarity, trajectory } from "whetstone";

/** Returns the word of a scenario: four letters that depend on the index alone. */
function word(index: number): string {
  return Array.from({ length: 4 }, (_, place) => "abcdefgh"[Math.floor((index * 7919 + 1234) / 8 ** place) % 8]).join("");
}

/** Returns the right answer. */
export function reversed(text: string): string {
  return [...text].reverse().join("");
}

export default defineEnvironment({
  name: "backwards",
  // Training takes the words of the indices 0, 1, 2 …; evaluations use words that training does not reach.
  scenarios: { train: word, eval: [4000, 4001, 4002, 4003].map(word) },
  async rollout(text, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: `Reverse: ${text}` }] });
    await t.sample(policy, { maxCompletionTokens: 12, ...sampling });
    return t;
  },
  rewards: [{ name: "similar", score: ({ scenario, text }) => similarity(text.trim(), reversed(scenario)) }],
  // `whetstone validate` checks that the rewards accept these answers.
  gold: reversed,
});
