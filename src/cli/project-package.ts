/** The package.json of a project that `whetstone init` creates or completes. */
import { readFile } from "node:fs/promises";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { ConfigError } from "../base/errors.ts";
import { packageFile } from "../base/util/package-file.ts";
import { readPackage } from "./package.ts";

/** Schema of scripts and dependencies. */
const strings = z.record(z.string(), z.string());
/** Schema of the members of a package.json that `init` reads; it keeps all other members. */
const packageFacts = z.looseObject({
  scripts: strings.optional(),
  dependencies: strings.optional(),
  devDependencies: strings.optional(),
});
/** Contents of a package.json. */
type ProjectPackage = z.infer<typeof packageFacts>;

/** Prefix of the script that `npm init` writes for a package without tests. */
const PLACEHOLDER = 'echo "Error: no test specified"';

/** A package.json to write. */
interface CompletedPackage {
  readonly content: ProjectPackage;
  /** Names of the scripts that the existing file has instead of the default ones. */
  readonly keptScripts: readonly string[];
}

/**
 * Returns the package.json of a project: the existing one with the missing scripts and dependencies, or a new one. Existing values are
 * kept, except the test script that `npm init` writes.
 *
 * @throws ConfigError `E_CONFIG` for an existing file that is not a package.json.
 */
export async function completePackage(root: string): Promise<CompletedPackage> {
  const existing = await readProject(root);
  const defaults = await packageDefaults(root);
  const { test, ...otherScripts } = existing?.scripts ?? {};
  const keptScripts = test === undefined || test.startsWith(PLACEHOLDER) ? otherScripts : { test, ...otherScripts };
  const { dependencies = {}, devDependencies = {} } = existing ?? {};
  const missing = (packages: Readonly<Record<string, string>>) =>
    Object.fromEntries(Object.entries(packages).filter(([name]) => !(name in dependencies) && !(name in devDependencies)));
  return {
    content: {
      ...(existing ?? { name: packageName(root), private: true, type: "module" }),
      scripts: { ...defaults.scripts, ...keptScripts },
      dependencies: { ...dependencies, ...missing(defaults.dependencies) },
      devDependencies: { ...devDependencies, ...missing(defaults.devDependencies) },
    },
    keptScripts: Object.keys(keptScripts).filter((name) => name in defaults.scripts),
  };
}

/** Reads the package.json of a directory. Returns null if the file does not exist. */
async function readProject(root: string): Promise<ProjectPackage | null> {
  const path = join(root, "package.json");
  const text = await readFile(path, "utf8").catch(() => null);
  if (text === null) return null;
  try {
    return packageFacts.parse(JSON.parse(text));
  } catch (cause) {
    throw new ConfigError(`Expected ${path} to be a package.json, a JSON object: ${(cause as Error).message}. Correct it, or remove it`, {
      cause,
      param: "directory",
    });
  }
}

/** Returns the scripts and dependencies of a new project. */
async function packageDefaults(root: string) {
  const { dependencies, devDependencies } = await readPackage();
  const model = "--model demo/backwards";
  return {
    scripts: {
      test: "node --import tsx --test environment.test.ts",
      typecheck: "tsc",
      validate: "whetstone validate environment.ts",
      train: `whetstone train environment.ts ${model} --steps 10`,
      evaluate: `whetstone eval environment.ts ${model}`,
    },
    dependencies: { whetstone: await whetstoneSpecifier(root) },
    devDependencies: {
      "@types/node": devDependencies["@types/node"] as string,
      tsx: dependencies["tsx"] as string,
      typescript: devDependencies["typescript"] as string,
    },
  };
}

/**
 * Returns the specifier with which a project installs the running package: the specifier of the project whose `node_modules` contains the
 * package, so that a tarball stays a tarball; for a checkout, its directory.
 */
async function whetstoneSpecifier(root: string): Promise<string> {
  const packageRoot = dirname(fileURLToPath(packageFile("package.json")));
  const parent = dirname(packageRoot);
  if (basename(parent) !== "node_modules") return fileSpecifier(root, packageRoot);
  const installingProject = dirname(parent);
  const { dependencies, devDependencies } = (await readProject(installingProject)) ?? {};
  const specifier = dependencies?.["whetstone"] ?? devDependencies?.["whetstone"];
  if (specifier === undefined) return (await readPackage()).version;
  if (!specifier.startsWith("file:")) return specifier;
  return fileSpecifier(root, resolve(installingProject, specifier.slice("file:".length)));
}

/** Returns the specifier of a package at a path, relative to the project. */
function fileSpecifier(root: string, path: string): string {
  return `file:${relative(root, path).replaceAll("\\", "/")}`;
}

/** Returns a valid npm name for a directory: without capital letters, starting with a letter or a digit. */
function packageName(root: string): string {
  const name = basename(root)
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]+/gu, "-")
    .replace(/^[^a-z0-9]+/u, "");
  return name || "agent";
}
