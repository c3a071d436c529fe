/** Search of the user's own code in stack traces, for errors that a user's function or file causes. */

import { relative } from "node:path";
import { fileURLToPath } from "node:url";

/** Directory of this package's code, as in stack traces: `src/` of a checkout, or `dist/`. */
const PACKAGE_CODE = /^(.*\/(?:src|dist)\/)/u.exec(fileURLToPath(import.meta.url))?.[1] ?? "";
/** Position in a line of a stack trace, or at the start of the trace of a syntax error. */
const POSITION = /((?:file:\/\/)?\/[^\s()?:]+)(?:\?[^\s():]*)?:(\d+)(?::\d+)?\)?$/u;

/**
 * Returns `file:line` of the first position in a stack trace that is neither in Node, in a dependency nor in this package; null without one.
 * The path is relative to the working directory.
 */
export function userLocation(stack: string): string | null {
  for (const text of stack.split("\n")) {
    const [, file = "", line = ""] = POSITION.exec(text.trimEnd()) ?? [];
    const path = file.startsWith("file://") ? fileURLToPath(file) : file;
    if (path === "" || path.includes("/node_modules/") || path.startsWith(PACKAGE_CODE)) continue;
    return `${relative("", path)}:${line}`;
  }
  return null;
}
