/**
 * Guess the number: the other side thinks of a number from 0 to {@link LARGEST} and answers every guess with "higher" or "lower".
 *
 * A whole game is one trajectory of several turns. The examples show a player that keeps to what it was told and otherwise guesses at random; that
 * halving the range needs fewer guesses is for the practice to find out.
 */
import { uniform } from "../shared/draws.ts";
import { type Split, SPLITS } from "../shared/splits.ts";

/** The number lies in 0 … this. */
export const LARGEST = 15;
/** Guesses before the game is lost: what halving needs in the worst case. */
export const MOST_GUESSES = 5;

export const SYSTEM_PROMPT = `Guess the secret number. The number is from 0 to ${LARGEST}.`;

/** One game. */
export interface GuessScenario {
  readonly id: string;
  readonly secret: number;
}

/**
 * Game `index` of a split. There are only sixteen secrets, so no game is new to the model; all but the examples go through them in
 * turn, so that a batch of sixteen plays each once and a measurement plays each equally often.
 */
export function guessScenario(split: Split, seed: number, index: number): GuessScenario {
  const secret = split === "sft" ? Math.floor(uniform(BigInt(seed), SPLITS.indexOf(split), index) * (LARGEST + 1)) : index % (LARGEST + 1);
  return { id: `secret-${secret}`, secret };
}

/** How a game begins. */
export function guessMessages(): { role: "system" | "user"; content: string }[] {
  return [
    { role: "system", content: SYSTEM_PROMPT },
    { role: "user", content: "Guess" },
  ];
}

/** What the other side says to a guess: `correct` ends the game, `undefined` means that the text is no guess at all. */
export function answerTo(text: string, { secret }: GuessScenario): "higher" | "lower" | "correct" | undefined {
  if (!/^\d{1,3}$/.test(text)) return undefined;
  const guess = Number(text);
  return guess === secret ? "correct" : guess < secret ? "higher" : "lower";
}

/** A game played by `choose`, as messages: guesses are the assistant's, hints the user's. */
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

/** A game of the examples: any number that the hints allow. */
export function exampleGame(seed: number, index: number): ReturnType<typeof playedGame> {
  const scenario = guessScenario("sft", seed, index);
  return playedGame(scenario, (low, high, turn) => low + Math.floor(uniform(BigInt(seed), SPLITS.length, index, turn) * (high - low + 1)));
}

/** A game of a perfect player, who halves what is left. */
export function goldGame(scenario: GuessScenario): ReturnType<typeof playedGame> {
  return playedGame(scenario, (low, high) => Math.floor((low + high) / 2));
}

/** What the rewards look at: the guesses in order. */
export function guessesOf(messages: readonly { readonly role: string; readonly content?: unknown }[]): string[] {
  return messages.filter(({ role }) => role === "assistant").map(({ content }) => (typeof content === "string" ? content : ""));
}

/** 1 when the last of at most {@link MOST_GUESSES} guesses is the secret. */
export function found(guesses: readonly string[], scenario: GuessScenario): number {
  return guesses.length <= MOST_GUESSES && answerTo(guesses.at(-1) ?? "", scenario) === "correct" ? 1 : 0;
}

/** Share of the allowed guesses that a found number left over: 1 for none used but the first, 0 when it was not found. */
export function thrift(guesses: readonly string[], scenario: GuessScenario): number {
  return found(guesses, scenario) * (1 - (guesses.length - 1) / MOST_GUESSES);
}

/** Two digits and the end. */
export const MAX_COMPLETION_TOKENS = 4;
