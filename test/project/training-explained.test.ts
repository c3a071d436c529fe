import { expect, it } from "vitest";
import { preferenceConfig, rlConfig, sftConfig, sftExperimentalConfig } from "../../src/base/schema/index.ts";
import { projectFiles, read, stepMetrics } from "./files.ts";

const page = read("docs/explanation/training.md");
const settings = page.split("## Every setting, and where it acts")[1]?.split("\n## ")[0] ?? "";

it.each([
  ["an RL job", Object.keys(rlConfig.shape)],
  ["a preference job", Object.keys(preferenceConfig.shape)],
  ["an SFT job", [...Object.keys(sftConfig.shape), ...Object.keys(sftExperimentalConfig.shape)]],
])("explains the effect of every setting of %s", (_, keys) => {
  const listed = new Set([...settings.matchAll(/`(\w+)`/gu)].map((match) => match[1]));
  expect(keys.filter((key) => !listed.has(key))).toEqual([]);
});

it("lists every metric of an RL step in the table of diagnostics", () => {
  const table = page.split("\n## Diagnostics\n")[1]?.split("\n## ")[0] ?? "";
  const rows = new Set([...table.matchAll(/^\| ([^|]+) \| [^|]+ \|/gmu)].flatMap(([, keys]) => keys!.split(", ")));
  expect(stepMetrics().filter((name) => !rows.has(`\`${name}\``))).toEqual([]);
});

it("names functions that the learner defines", () => {
  const source = projectFiles("src/learner").map(read).join("\n");
  const defined = new Set([...source.matchAll(/^export function\*? (\w+)/gmu)].map((match) => match[1]));
  const functions = [...settings.matchAll(/`([a-z]+(?:[A-Z]\w*)+)`/gu)].map((match) => match[1] ?? "");
  expect(functions.length).toBeGreaterThan(5);
  expect(functions.filter((name) => !defined.has(name))).toEqual([]);
});
