/**
 * Before every file of tests: properties are tried on the same values each time, so that a run says something about the code
 * and not about its luck. `WHETSTONE_FUZZ_SEED=$RANDOM npm run test:run` looks elsewhere; what it finds becomes a case of its own.
 */
import fc from "fast-check";
import { beforeEach } from "vitest";
import { reuseWorkThreads } from "./support/work-threads.ts";

fc.configureGlobal({ seed: Number(process.env["WHETSTONE_FUZZ_SEED"] ?? 20) });

beforeEach(reuseWorkThreads);
