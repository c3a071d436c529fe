/** package.json of this package. */
import { readFile } from "node:fs/promises";
import { packageFile } from "../base/util/package-file.ts";

/** Part of the package's package.json that commands need. */
export interface PackageFacts {
  readonly version: string;
  readonly engines: { readonly node: string };
  /** Exact versions by package. */
  readonly dependencies: Readonly<Record<string, string>>;
  /** Exact versions of the packages that only a checkout installs. */
  readonly devDependencies: Readonly<Record<string, string>>;
}

/** Reads package.json of this package. */
export async function readPackage(): Promise<PackageFacts> {
  return JSON.parse(await readFile(packageFile("package.json"), "utf8")) as PackageFacts;
}
