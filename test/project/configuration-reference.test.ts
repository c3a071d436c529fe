import { expect, it } from "vitest";
import { expectationOf, SETTINGS } from "../../src/cli/settings/schema.ts";
import { preferenceConfig, rlConfig, sftConfig, sftExperimentalConfig } from "../../src/base/schema/index.ts";
import { resolveLimits } from "../../src/service/chat/generate/admit.ts";
import { DEFAULT_LIMITS } from "../../src/service/common/limits.ts";
import { read } from "./files.ts";

/** Names in the first column of every table below `heading` (`## …`). */
function documented(heading: string): string[] {
  const section = read("docs/reference/configuration.md")
    .split(/^## /mu)
    .find((text) => text.startsWith(`${heading}\n`));
  if (section === undefined) throw new Error(`docs/reference/configuration.md has no section "${heading}"`);
  const cells = [...section.matchAll(/^\| (`.*?) \|/gmu)].map((match) => match[1] ?? "");
  return cells.flatMap((cell) => [...cell.matchAll(/`([\w.]+)`/gu)].map((match) => match[1] ?? "")).toSorted();
}

it("lists exactly the settings of an RL job", () => {
  expect(documented("`experimental_config` of an RL job")).toEqual(Object.keys(rlConfig.shape).toSorted());
});

it("lists exactly the settings of an SFT job", () => {
  const keys = [...Object.keys(sftConfig.shape), ...Object.keys(sftExperimentalConfig.shape)];
  expect(documented("Settings of an SFT job")).toEqual(keys.toSorted());
});

it("lists exactly the settings of a preference job", () => {
  expect(documented("Settings of a preference job")).toEqual(Object.keys(preferenceConfig.shape).toSorted());
});

it("lists every limit of the service", () => {
  const limits = [...Object.keys(DEFAULT_LIMITS), ...Object.keys(resolveLimits()).map((key) => `chat.${key}`)];
  expect(documented("Options of `startService`")).toEqual(expect.arrayContaining(limits));
});

it("lists the settings of `whetstone train` with their types and descriptions, in the order of the schema", () => {
  const section = read("docs/reference/configuration.md").split("## Settings of `whetstone train`\n")[1] ?? "";
  const rows = [...SETTINGS].map(([name, { schema, description }]) => `| \`${name}\` | ${expectationOf(schema)} | ${description} |`);
  expect(section.split(/^## /mu)[0]?.match(/^\| `.*$/gmu)).toEqual(rows);
});
