/** Type declarations of the package for compilers that do not read `exports`, such as the one of tslab's notebooks. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { expect, it } from "vitest";
import { packageJson, ROOT } from "./files.ts";

const PACKAGE = "/project/node_modules/whetstone/";

/** File system with the package installed: a declaration exists in `dist` for each module of `src`. */
const host: ts.ModuleResolutionHost = {
  fileExists: (path) =>
    path === `${PACKAGE}package.json` ||
    (path.startsWith(`${PACKAGE}dist/`) && existsSync(join(ROOT, "src", path.slice(`${PACKAGE}dist/`.length).replace(/\.d\.ts$/u, ".ts")))),
  directoryExists: () => true,
  readFile: (path) => (path === `${PACKAGE}package.json` ? JSON.stringify(packageJson) : undefined),
};

it("names the declarations of every entry in `typesVersions`, too", () => {
  const entries = Object.entries(packageJson.exports).flatMap(([subpath, target]) =>
    typeof target === "string" ? [] : [[`whetstone${subpath.slice(1)}`, target["types"]]],
  );
  const options: ts.CompilerOptions = { moduleResolution: ts.ModuleResolutionKind.Node10 };
  const resolved = entries.map(([name = ""]) => {
    const found = ts.resolveModuleName(name, "/project/program.ts", options, host).resolvedModule?.resolvedFileName;
    return [name, found?.replace(PACKAGE, "./")];
  });
  expect(entries.length).toBeGreaterThan(10);
  expect(resolved).toEqual(entries);
});
