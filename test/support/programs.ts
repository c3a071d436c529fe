/** Counts of the compiled graphs of a test. */
import { onTestFinished, vi } from "vitest";
import { Program } from "../../src/engine/onnx/runtime/program.ts";

/**
 * Counts the graphs that are compiled from now to the end of the test, and how many of them are released. Engines of earlier tests in the
 * same process release theirs at any time, when they have been idle for a while.
 */
export function watchPrograms(): { readonly compiled: () => number; readonly released: () => number } {
  const compile = vi.spyOn(Program, "compile");
  const release = vi.spyOn(Program.prototype, "release");
  onTestFinished(() => {
    compile.mockRestore();
    release.mockRestore();
  });
  return {
    compiled: () => compile.mock.calls.length,
    released() {
      const programs = new Set(compile.mock.settledResults.map(({ value }) => value as unknown));
      return release.mock.contexts.filter((program) => programs.has(program)).length;
    },
  };
}
