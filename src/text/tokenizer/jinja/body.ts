/** Compiled statements, as `statements.ts` makes them: functions that run in a scope and write to an output. */

import { Output, type Scope } from "./scope.ts";

/** End of a statement: the loop around it ends (`break`) or continues with its next element; undefined if the next statement follows. */
export type Exit = "break" | "continue" | undefined;

/** Runs a statement. */
export type Run = (scope: Scope, output: Output) => Exit;

/** Compiled statements that run in a scope of their own. */
export interface ScopedBody {
  readonly run: Run;
  /** Names that are undefined in the scope until it assigns them. */
  readonly localNames: ReadonlySet<string>;
}

/**
 * Renders a body to a text in a new scope inside `scope`.
 *
 * @param prepare - Sets variables of the new scope before the body runs.
 * @returns The text up to the `break` or `continue` that left the body, and that exit.
 */
export function renderBody(
  body: ScopedBody,
  scope: Scope,
  prepare?: (bodyScope: Scope) => void,
): { readonly text: string; readonly exit: Exit } {
  const output = new Output(scope.meter);
  const bodyScope = scope.child(body.localNames);
  prepare?.(bodyScope);
  const exit = body.run(bodyScope, output);
  return { text: output.text, exit };
}
