/** Facts about this package from its `package.json`. */
import { readFileSync } from "node:fs";
import { packageFile } from "../../base/util/package-file.ts";

/** Returns version and license of this package. */
export function packageInfo(): { readonly version: string; readonly license: string } {
  return JSON.parse(readFileSync(packageFile("package.json"), "utf8")) as { version: string; license: string };
}
