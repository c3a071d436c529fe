import { afterAll, beforeAll, describe } from "vitest";
import { samplingBehaviours } from "./sampling.ts";
import type { Subject } from "./subject.ts";
import { trainingBehaviours } from "./training.ts";

/** Options of {@link engineConformance}. */
export interface ConformanceOptions {
  /** Timeout of the start and of each test, in ms; the first use of a graph compiles it. @default 60000 */
  readonly timeoutMs?: number;
  /** Why the engine cannot be had here; then its tests are skipped, and their title says why. @default it can */
  readonly missing?: string | null;
}

/** Defines the tests of the behaviours required of every engine, for the engine that `start` returns. */
export function engineConformance(
  name: string,
  start: () => Promise<Subject>,
  { timeoutMs: timeout = 120_000, missing = null }: ConformanceOptions = {},
): void {
  describe.skipIf(missing !== null)(`${name}${missing === null ? "" : `: ${missing}`}`, { timeout }, () => {
    let subject: Subject | undefined;
    beforeAll(async () => {
      subject = await start();
    }, timeout);
    // A failed start has nothing to close, and its own error is reported.
    afterAll(() => subject?.close(), timeout);
    trainingBehaviours(() => subject!);
    samplingBehaviours(() => subject!);
  });
}
