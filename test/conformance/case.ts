/** Type of a conformance case. */
import type { chatCompletionRequest } from "../../src/base/schema/index.ts";
import type { ServerKind } from "./servers.ts";
import type { Target } from "./target.ts";

/** A field of a chat completion request. */
export type Field = keyof typeof chatCompletionRequest.shape;

/** Server and feature that a case requires. */
export interface Need {
  readonly server: Exclude<ServerKind, "plain">;
  /** Required option or fault, reported if the case is skipped. */
  readonly because: string;
}

/** Conformance case. Uses only HTTP, so that it can run against any server. */
export interface ConformanceCase {
  /** Number in the specification's list of cases; 100 and above are additions of this project. Rows of the error table are `E1` to `E13`. */
  readonly number: number | `E${number}`;
  readonly title: string;
  /** Request fields that the case sends. */
  readonly fields?: readonly Field[] | undefined;
  /** @default no requirement: the case applies to any server */
  readonly needs?: Need | undefined;
  /** Time limit in milliseconds. @default 30,000 */
  readonly timeoutMs?: number | undefined;
  readonly run: (target: Target) => Promise<void>;
}

/** Returns a requirement for a model that repeats text from its last message, and fails on request. */
export const parrot = (because = "a model whose words a test chooses"): Need => ({ server: "parrot", because });
