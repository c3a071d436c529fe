import { spawnSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { missingOptionals } from "../../scripts/complete-lockfile.js";
import { packageJson, read, ROOT } from "./files.ts";

interface LockEntry {
  readonly version?: string;
  readonly hasInstallScript?: boolean;
}

const lock = JSON.parse(read("package-lock.json")) as { packages: Record<string, LockEntry> };
const { dependencies, devDependencies, allowScripts } = packageJson;

/** Returns the packages of the table under `heading`, each with its two text columns. */
function documented(heading: string): Map<string, readonly string[]> {
  const section = read("docs/explanation/dependencies.md").split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const rows = section.matchAll(/^\| `([^`]+)` \| (.+) \| (.+) \|$/gmu);
  return new Map([...rows].map((match) => [match[1] ?? "", [match[2] ?? "", match[3] ?? ""]]));
}

describe("dependencies", () => {
  it.each([
    ["At run time", dependencies],
    ["In development", devDependencies],
  ])("have a reason in the document: %s", (heading, listed) => {
    const rows = documented(heading);
    expect([...rows.keys()].toSorted()).toEqual(Object.keys(listed).toSorted());
    for (const text of [...rows.values()].flat()) expect(text.trim()).not.toBe("");
  });

  it("are pinned to the exact versions of the lockfile", () => {
    for (const [name, specifier] of Object.entries({ ...dependencies, ...devDependencies })) {
      // A second version of a package has a name of its own.
      const version = specifier.replace(/^npm:[^@]+@/u, "");
      expect(version, name).toMatch(/^\d+\.\d+\.\d+$/u);
      expect(lock.packages[`node_modules/${name}`]?.version, name).toBe(version);
    }
  });

  it("are all in the lockfile, including packages for other platforms", () => {
    expect(missingOptionals(lock)).toEqual({});
  });

  it("support the running version of Node, as npm checks the lockfile", () => {
    // A dry run writes nothing and, with a complete lockfile, needs no network.
    const { status, stderr } = spawnSync("npm", ["ci", "--dry-run", "--offline", "--engine-strict"], {
      cwd: ROOT,
      encoding: "utf8",
      shell: process.platform === "win32",
    });
    expect(stderr).not.toContain("EBADENGINE");
    expect(status).toBe(0);
  });

  it("run no install script except the listed ones", () => {
    const withScript = Object.entries(lock.packages).flatMap(([path, entry]) =>
      entry.hasInstallScript ? [path.replace(/^.*node_modules\//u, "")] : [],
    );
    // fsevents is optional and for macOS only.
    expect(withScript.filter((name) => name !== "fsevents").toSorted()).toEqual(Object.keys(allowScripts).toSorted());
  });
});
