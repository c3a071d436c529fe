import { afterEach, expect, test, vi } from "vitest";
import { run } from "../../src/cli/program.ts";

afterEach(() => vi.restoreAllMocks());

test.each([
  ["--retain-jobs", "30 moons", "90m, 12h or 30d"],
  ["--retain-artifacts", "-1d", "90m, 12h or 30d"],
  ["--min-free", "some", "500MB or 20GB"],
])("rejects %s %s with examples of valid values", async (option, value, examples) => {
  let text = "";
  vi.spyOn(process.stderr, "write").mockImplementation((chunk) => {
    text += String(chunk);
    return true;
  });
  expect(await run(["serve", `${option}=${value}`])).toBe(2);
  expect(text).toContain(examples);
});
