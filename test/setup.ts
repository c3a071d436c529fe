/**
 * Setup of every test file. Property tests use the same values in every run; `WHETSTONE_FUZZ_SEED=$RANDOM npm run test:run` uses others.
 * A failure that other values find becomes a case of its own.
 */
import fc from "fast-check";
import { afterEach, beforeEach, vi } from "vitest";
import { compareTypedArraysByBytes } from "./support/typed-array-equality.ts";
import { reuseWorkThreads } from "./support/work-threads.ts";

fc.configureGlobal({ seed: Number(process.env["WHETSTONE_FUZZ_SEED"] ?? 20) });

compareTypedArraysByBytes();

beforeEach(reuseWorkThreads);
// The files of a fork share its environment.
afterEach(() => void vi.unstubAllEnvs());
