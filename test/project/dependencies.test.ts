import { describe, expect, it } from "vitest";
import { missingOptionals } from "../../scripts/complete-lockfile.js";
import { packageJson, read } from "./files.ts";

interface LockEntry {
  readonly version?: string;
  readonly hasInstallScript?: boolean;
}

const lock = JSON.parse(read("package-lock.json")) as { packages: Record<string, LockEntry> };
const { dependencies, devDependencies, allowScripts } = packageJson;

/** The packages of the table under `heading`, each with its two columns of text. */
function documented(heading: string): Map<string, readonly string[]> {
  const section = read("docs/explanation/dependencies.md").split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const rows = section.matchAll(/^\| `([^`]+)` \| (.+) \| (.+) \|$/gmu);
  return new Map([...rows].map((match) => [match[1] ?? "", [match[2] ?? "", match[3] ?? ""]]));
}

describe("dependencies", () => {
  it.each([
    ["At run time", dependencies],
    ["In development", devDependencies],
  ])("have their reason in the document: %s", (heading, listed) => {
    const rows = documented(heading);
    expect([...rows.keys()].toSorted()).toEqual(Object.keys(listed).toSorted());
    for (const text of [...rows.values()].flat()) expect(text.trim()).not.toBe("");
  });

  it("are pinned to exact versions, the ones in the lockfile", () => {
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies })) {
      expect(version, name).toMatch(/^\d+\.\d+\.\d+$/u);
      expect(lock.packages[`node_modules/${name}`]?.version, name).toBe(version);
    }
  });

  it("are all in the lockfile, those of other platforms too", () => {
    expect(missingOptionals(lock)).toEqual({});
  });

  it("run no install script that was not decided on", () => {
    const withScript = Object.entries(lock.packages).flatMap(([path, entry]) =>
      entry.hasInstallScript ? [path.replace(/^.*node_modules\//u, "")] : [],
    );
    // fsevents is optional and for one platform only.
    expect(withScript.filter((name) => name !== "fsevents").toSorted()).toEqual(Object.keys(allowScripts).toSorted());
  });
});
