import { describe, expect, test } from "vitest";
import { validate } from "whetstone/environment";
import environment from "../../recipes/reverse-text/environment.ts";
import { checkRun, runRecipe, TINY } from "./run-recipe.ts";

describe("reverse-text", () => {
  test("only gold answers earn 1, and no held-out string is in the training split", async () => {
    expect(environment.scenarios.eval).toHaveLength(256);
    expect(await validate(environment)).toMatchObject({ isValid: true, expected: 1 });
  });

  test("the command runs an SFT job and two RL steps", async () => {
    checkRun("reverse-text", await runRecipe("reverse-text", TINY));
  }, 120_000);
});
