import { describe, expect, test } from "vitest";
import { validate } from "whetstone/environment";
import environment from "../../recipes/reverse-text/environment.ts";
import { checkRun, runRecipe, TINY } from "./run-recipe.ts";

describe("reverse-text", () => {
  test("gold answers alone earn 1, and no held-out string is trained on", async () => {
    expect(environment.scenarios.eval).toHaveLength(256);
    expect(await validate(environment)).toMatchObject({ isValid: true, expected: 1 });
  });

  test("the command runs: a job of examples and two steps of practice", async () => {
    checkRun("reverse-text", await runRecipe("reverse-text", TINY));
  }, 120_000);
});
