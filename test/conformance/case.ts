/** What a conformance case is. */
import type { chatCompletionRequest } from "../../src/schema/index.ts";
import type { ServerKind } from "./servers.ts";
import type { Target } from "./target.ts";

/** A field of a chat completion request. */
export type Field = keyof typeof chatCompletionRequest.shape;

/** What an outside server may lack. */
export interface Need {
  readonly server: Exclude<ServerKind, "plain">;
  /** The option or the fault, as the report of a skipped case names it. */
  readonly because: string;
}

/** One case. Speaks HTTP alone, so that it can be put to any server. */
export interface ConformanceCase {
  /** Number in the specification's list of cases; 100 and above are additions of this project. Rows of the error table are `E1` to `E13`. */
  readonly number: number | `E${number}`;
  readonly title: string;
  /** The fields it speaks of, each of which it sends. */
  readonly fields?: readonly Field[] | undefined;
  /** @default nothing: the case holds of any server */
  readonly needs?: Need | undefined;
  /** @default that of vitest */
  readonly timeoutMs?: number | undefined;
  readonly run: (target: Target) => Promise<void>;
}

/** A model that says what its last message asks for, and fails on request. */
export const parrot = (because = "a model whose words a test chooses"): Need => ({ server: "parrot", because });
