/** Content hash of an environment, by which a run and its workers make sure that they play the same version. */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { ConfigError } from "../../base/errors.ts";
import { messageOf } from "../../base/util/values.ts";
import type { Environment } from "./environment.ts";

/**
 * Returns the content hash of an environment: SHA-256 over the paths and contents of the file in `source` and of every local file that it
 * imports, directly or not. Two processes with the same hash play the same environment, if they have the same versions of packages.
 *
 * Paths are relative to the folder of the file. Packages, files that are read at run time, and variables of the process are not part of the
 * hash.
 *
 * @param environment - Environment with a `source`.
 * @returns 64 hexadecimal digits.
 * @throws ConfigError `E_CONFIG` for an environment without `source`, and for a file that cannot be read or parsed.
 * @example
 * ```ts
 * console.log(await contentHash(environment));
 * ```
 */
export async function contentHash({ name, source }: Pick<Environment<never>, "name" | "source">): Promise<string> {
  if (source === undefined) {
    throw new ConfigError(
      `Environment \`${name}\` has no \`source\`, by which workers recognize it: pass \`source: import.meta.url\` to \`defineEnvironment\``,
      { param: "source" },
    );
  }
  const path = source.startsWith("file:") ? fileURLToPath(source) : resolve(source);
  const folder = dirname(path);
  const hash = createHash("sha256");
  for (const file of await localFiles(folder, basename(path))) {
    const contents = await readFile(resolve(folder, file));
    const digest = createHash("sha256").update(contents).digest("hex");
    hash.update(`${file}\n${digest}\n`);
  }
  return hash.digest("hex");
}

/** Returns the paths of a file and its local imports, relative to its folder, in order. */
async function localFiles(folder: string, file: string): Promise<string[]> {
  // Loaded on first use; tsx, which loads TypeScript, has the same package.
  const { build } = await import("esbuild");
  try {
    const { metafile } = await build({
      absWorkingDir: folder,
      entryPoints: [`./${file}`],
      bundle: true,
      packages: "external",
      platform: "node",
      format: "esm",
      target: "esnext",
      write: false,
      metafile: true,
      logLevel: "silent",
    });
    return Object.keys(metafile.inputs).toSorted();
  } catch (cause) {
    throw new ConfigError(`Expected the imports of ${resolve(folder, file)} to be readable: ${messageOf(cause)}. Correct the file`, {
      cause,
      param: "source",
    });
  }
}
