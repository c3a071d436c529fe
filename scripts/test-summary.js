/**
 * Prints `N passed, N failed` (and `, N skipped`) from vitest's JSON report: `node scripts/test-summary.js <status of the test command>`.
 *
 * A test file that could not be loaded counts as one failure, and so does a command that failed outside the tests (lint, types, …).
 */
import { readFileSync } from "node:fs";

/** @param {{ numPassedTests: number; numFailedTests: number; numPendingTests: number; numTodoTests: number; testResults: { status: string; assertionResults: unknown[] }[] } | undefined} report */
export function summary(report, status) {
  const { numPassedTests: passed = 0, numFailedTests = 0, numPendingTests = 0, numTodoTests = 0, testResults = [] } = report ?? {};
  const unloaded = testResults.filter((file) => file.status === "failed" && file.assertionResults.length === 0).length;
  const failed = numFailedTests + unloaded;
  const skipped = numPendingTests + numTodoTests;
  return `${passed} passed, ${status !== 0 && failed === 0 ? 1 : failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}

function readReport() {
  try {
    return JSON.parse(readFileSync(new URL("../node_modules/.cache/whetstone/tests.json", import.meta.url), "utf8"));
  } catch {
    return undefined; // the tests did not get to run
  }
}

if (process.argv[1] === import.meta.filename) console.log(summary(readReport(), Number(process.argv[2] ?? 0)));
