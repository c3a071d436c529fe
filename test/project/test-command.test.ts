import { describe, expect, it } from "vitest";
import { summary } from "../../scripts/test-summary.js";
import { packageJson, read } from "./files.ts";

const COMMAND = "npm ci && npm test";

describe("the test command", () => {
  it("is the same in the README and in .ci/run", () => {
    expect(
      read("README.md")
        .split("\n")
        .map((line) => line.replace(/\s+#.*$/u, "").trim()),
    ).toContain(COMMAND);
    expect(read(".ci/run").split("\n")).toContain(COMMAND);
  });

  it("includes type check, lint and layering, format, dead code and tests", () => {
    expect(packageJson.scripts["test"]?.split(/[ +]/u).slice(2)).toEqual([
      "typecheck",
      "typecheck:build",
      "lint",
      "format:check",
      "dead-code",
      "test:run",
    ]);
  });
});

describe("the summary line", () => {
  const file = { status: "passed", assertionResults: [{}] };
  const report = { numPassedTests: 3, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [file] };

  it("counts passed and failed tests", () => {
    expect(summary(report, 0)).toBe("3 passed, 0 failed");
    expect(summary({ ...report, numFailedTests: 2 }, 1)).toBe("3 passed, 2 failed");
  });

  it("counts skipped tests, if any", () => {
    expect(summary({ ...report, numPendingTests: 1, numTodoTests: 1 }, 0)).toBe("3 passed, 0 failed, 2 skipped");
  });

  it("counts a file that could not be loaded as a failure", () => {
    expect(summary({ ...report, testResults: [file, { status: "failed", assertionResults: [] }] }, 1)).toBe("3 passed, 1 failed");
  });

  it("reports a failure if the command failed or no test ran", () => {
    expect(summary(report, 1)).toBe("3 passed, 1 failed");
    expect(summary(undefined, 1)).toBe("0 passed, 1 failed");
  });
});
