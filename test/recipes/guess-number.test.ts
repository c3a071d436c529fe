import { describe, expect, test } from "vitest";
import { validate } from "whetstone/environment";
import environment from "../../recipes/guess-number/environment.ts";
import {
  answerTo,
  exampleGame,
  found,
  goldGame,
  guessesOf,
  guessScenario,
  LARGEST,
  MAX_GUESSES,
  thrift,
} from "../../recipes/guess-number/task.ts";
import { checkRun, runRecipe, TINY } from "./run-recipe.ts";

const secrets = Array.from({ length: LARGEST + 1 }, (_, secret) => ({ id: `secret-${secret}`, secret }));

describe("guess-number", () => {
  test("hints point to the secret, and an invalid guess gets no hint", () => {
    const game = { id: "secret-9", secret: 9 };
    expect(["8", "10", "9"].map((guess) => answerTo(guess, game))).toEqual(["higher", "lower", "correct"]);
    expect(["", "nine", "-1", "9 ", "9.0"].map((guess) => answerTo(guess, game))).toEqual(Array.from({ length: 5 }, () => undefined));
  });

  test("a perfect player finds every secret, and rewards depend on the number of guesses", () => {
    for (const scenario of secrets) {
      const guesses = guessesOf(goldGame(scenario));
      expect(guesses.length, String(scenario.secret)).toBeLessThanOrEqual(MAX_GUESSES);
      expect(found(guesses, scenario)).toBe(1);
      expect(thrift(guesses, scenario)).toBeCloseTo(1 - (guesses.length - 1) / MAX_GUESSES);
    }
    // A binary search tree over 16 numbers: 1, 2, 4, 8 and 1 of them at depths 1 to 5.
    const total = secrets.reduce((sum, scenario) => sum + guessesOf(goldGame(scenario)).length, 0);
    expect(total).toBe(1 + 2 * 2 + 4 * 3 + 8 * 4 + 5);
  });

  test("every gold game earns at least the reward of the longest one", async () => {
    // Found with the last of the five guesses.
    expect((await validate(environment, { expected: 0.5 + 0.5 * (1 - 4 / 5) })).isValid).toBe(true);
    expect((await validate(environment, { expected: 0.7 })).isValid).toBe(false);
  });

  test("wrong, late and missing guesses earn nothing", () => {
    const game = { id: "secret-9", secret: 9 };
    for (const guesses of [[], [""], ["8"], ["9", "8"], ["1", "2", "3", "4", "5", "9"]]) {
      expect([found(guesses, game), thrift(guesses, game)]).toEqual([0, 0]);
    }
  });

  test("example games follow the hints, but do not use binary search", () => {
    let halvings = 0;
    for (let index = 0; index < 300; index++) {
      const { secret } = guessScenario("sft", 1, index);
      const messages = exampleGame(1, index);
      let [low, high] = [0, LARGEST];
      for (const { role, content } of messages.slice(2)) {
        if (role === "user") continue;
        const guess = Number(content);
        expect(guess).toBeGreaterThanOrEqual(low);
        expect(guess).toBeLessThanOrEqual(high);
        if (guess < secret) low = guess + 1;
        else high = guess - 1;
      }
      expect(messages.at(-1)!.content).toBe(String(secret));
      if (messages[2]!.content === "7" || messages[2]!.content === "8") halvings++;
    }
    // 300 fair draws of two first guesses in sixteen: 37.5, deviation 5.7.
    expect(halvings).toBeGreaterThan(15);
    expect(halvings).toBeLessThan(60);
  });

  test("evaluation games cover all secrets equally often", () => {
    const counts = new Map<number, number>();
    for (const { secret } of environment.scenarios.eval) counts.set(secret, (counts.get(secret) ?? 0) + 1);
    expect([...counts.keys()].sort((a, b) => a - b)).toEqual(secrets.map(({ secret }) => secret));
    expect(new Set(counts.values())).toEqual(new Set([16]));
  });

  test("the command runs an SFT job and two RL steps", async () => {
    checkRun("guess-number", await runRecipe("guess-number", TINY));
  }, 120_000);
});
