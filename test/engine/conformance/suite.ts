import { afterAll, beforeAll, describe } from "vitest";
import { samplingBehaviours } from "./sampling.ts";
import type { Subject } from "./subject.ts";
import { trainingBehaviours } from "./training.ts";

/** Options of {@link engineConformance}. */
export interface ConformanceOptions {
  /** Of the start and of each test. @default 60000: what is used first is compiled first */
  readonly timeoutMs?: number;
  /** Why the engine cannot be had here; then its tests are skipped, and their title says why. @default it can */
  readonly missing?: string | null;
}

/** The behaviours that every engine behind the port must show, as tests over the engine that `start` gives. */
export function engineConformance(
  name: string,
  start: () => Promise<Subject>,
  { timeoutMs: timeout = 60_000, missing = null }: ConformanceOptions = {},
): void {
  describe.skipIf(missing !== null)(`${name}${missing === null ? "" : `: ${missing}`}`, { timeout }, () => {
    let subject: Subject | undefined;
    beforeAll(async () => {
      subject = await start();
    }, timeout);
    // A start that failed has nothing to close, and its own error is the one to be told.
    afterAll(() => subject?.close(), timeout);
    trainingBehaviours(() => subject!);
    samplingBehaviours(() => subject!);
  });
}
