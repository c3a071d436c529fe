import { trajectory } from "whetstone";
import { defineEnvironment, type Environment, reward, weighted } from "whetstone/environment";
import {
  answerTo,
  found,
  goldGame,
  guessesOf,
  guessMessages,
  type GuessScenario,
  guessScenario,
  MAX_COMPLETION_TOKENS,
  MAX_GUESSES,
  thrift,
} from "./task.ts";

/** Creates the environment for a seed; `eval` has the first `heldOut` held-out games. */
export function guessEnvironment(seed = 1, heldOut = 256): Environment<GuessScenario> {
  return defineEnvironment({
    name: "guess-number",
    scenarios: {
      train: (index) => guessScenario("train", seed, index),
      eval: Array.from({ length: heldOut }, (_, index) => guessScenario("held-out", seed, index)),
    },
    async rollout(scenario, { policy, sampling }) {
      const t = trajectory({ messages: guessMessages() });
      for (let turn = 0; turn < MAX_GUESSES; turn++) {
        const { text } = await t.sample(policy, { maxCompletionTokens: MAX_COMPLETION_TOKENS, ...sampling });
        const answer = answerTo(text, scenario);
        if (answer === "correct" || answer === undefined || turn + 1 === MAX_GUESSES) break;
        t.add({ role: "user", content: answer });
      }
      return t;
    },
    rewards: [
      weighted(
        0.5,
        reward("found", ({ trajectory: game, scenario }) => found(guessesOf(game.messages()), scenario)),
      ),
      weighted(
        0.5,
        reward("thrift", ({ trajectory: game, scenario }) => thrift(guessesOf(game.messages()), scenario)),
      ),
      weighted(
        0,
        reward("guesses", ({ trajectory: game }) => game.choices.length),
      ),
    ],
    gold: (scenario) => goldGame(scenario).slice(guessMessages().length),
  });
}

export default guessEnvironment();
