/**
 * Guess the number: the environment chooses a secret from 0 to {@link LARGEST} and answers every guess with "higher" or "lower".
 *
 * A complete game is one multi-turn trajectory. The SFT examples show a player that respects all hints and otherwise guesses at random; RL
 * has to discover that bisection needs fewer guesses.
 */
import { uniform } from "../shared/draws.ts";
import { type Split, SPLITS } from "../shared/splits.ts";

/** Max value of the secret; the min is 0. */
export const LARGEST = 15;
/** Max guesses per game: the worst case of bisection. */
export const MAX_GUESSES = 5;

export const SYSTEM_PROMPT = `Guess the secret number. The number is from 0 to ${LARGEST}.`;

/** Game with its secret. */
export interface GuessScenario {
  readonly id: string;
  readonly secret: number;
}

/**
 * Returns game `index` of a split. There are only sixteen secrets, so no game is new to the model. All splits except the examples cycle
 * through the secrets, so that a batch of sixteen plays each secret once and an evaluation plays each equally often.
 */
export function guessScenario(split: Split, seed: number, index: number): GuessScenario {
  const secret = split === "sft" ? Math.floor(uniform(BigInt(seed), SPLITS.indexOf(split), index) * (LARGEST + 1)) : index % (LARGEST + 1);
  return { id: `secret-${secret}`, secret };
}

/** Returns the prompt messages of a game. */
export function guessMessages(): { role: "system" | "user"; content: string }[] {
  return [
    { role: "system", content: SYSTEM_PROMPT },
    { role: "user", content: "Guess" },
  ];
}

/** Returns the environment's answer to a guess: `correct` ends the game, `undefined` means that the text is not a guess. */
export function answerTo(text: string, { secret }: GuessScenario): "higher" | "lower" | "correct" | undefined {
  if (!/^\d{1,3}$/.test(text)) return undefined;
  const guess = Number(text);
  return guess === secret ? "correct" : guess < secret ? "higher" : "lower";
}

/** Returns the messages of a game played by `choose`: assistant messages are guesses, user messages are hints. */
export function playedGame(
  scenario: GuessScenario,
  choose: (low: number, high: number, turn: number) => number,
): { role: "system" | "user" | "assistant"; content: string }[] {
  const messages: { role: "system" | "user" | "assistant"; content: string }[] = [...guessMessages()];
  let [low, high] = [0, LARGEST];
  for (let turn = 0; ; turn++) {
    const guess = choose(low, high, turn);
    messages.push({ role: "assistant", content: String(guess) });
    if (guess === scenario.secret) return messages;
    if (guess < scenario.secret) low = guess + 1;
    else high = guess - 1;
    messages.push({ role: "user", content: guess < scenario.secret ? "higher" : "lower" });
  }
}

/** Returns a game for the SFT examples: each guess is a random number consistent with the hints. */
export function exampleGame(seed: number, index: number): ReturnType<typeof playedGame> {
  const scenario = guessScenario("sft", seed, index);
  return playedGame(scenario, (low, high, turn) => low + Math.floor(uniform(BigInt(seed), SPLITS.length, index, turn) * (high - low + 1)));
}

/** Returns a game of an optimal player, which bisects the remaining range. */
export function goldGame(scenario: GuessScenario): ReturnType<typeof playedGame> {
  return playedGame(scenario, (low, high) => Math.floor((low + high) / 2));
}

/** Returns the guesses in order, the input of the rewards. */
export function guessesOf(messages: readonly { readonly role: string; readonly content?: unknown }[]): string[] {
  return messages.filter(({ role }) => role === "assistant").map(({ content }) => (typeof content === "string" ? content : ""));
}

/** Returns 1 if the last of at most {@link MAX_GUESSES} guesses is the secret, else 0. */
export function found(guesses: readonly string[], scenario: GuessScenario): number {
  return guesses.length <= MAX_GUESSES && answerTo(guesses.at(-1) ?? "", scenario) === "correct" ? 1 : 0;
}

/** Returns the fraction of allowed guesses left when the secret is found: 1 for a hit with the first guess, 0 if it was not found. */
export function thrift(guesses: readonly string[], scenario: GuessScenario): number {
  return found(guesses, scenario) * (1 - (guesses.length - 1) / MAX_GUESSES);
}

/** Max tokens of a guess: two digits and the end token, with one to spare. */
export const MAX_COMPLETION_TOKENS = 4;
