/** docs/reference/command-line.md against the definitions of the commands. */
import { describe, expect, it } from "vitest";
import type { Command } from "commander";
import { commandTree, createProgram } from "../../src/cli/program.ts";
import { read } from "./files.ts";

const PAGE = "docs/reference/command-line.md";

/** Returns the path of a command without the program's name. */
function pathOf(command: Command): string {
  return command.parent === null ? "" : `${pathOf(command.parent)} ${command.name()}`.trim();
}

/** Returns the table of a command's arguments and options. `--json` and `--help` are described once for all commands. */
function tableOf(command: Command): string[] {
  const cell = (text: string) => text.replaceAll("|", String.raw`\|`);
  const args = command.registeredArguments.map((argument) => {
    const name = `${argument.name()}${argument.variadic ? "..." : ""}`;
    const choices = argument.argChoices === undefined ? "" : `: ${argument.argChoices.map((choice) => `\`${choice}\``).join(", ")}`;
    return [argument.required ? `<${name}>` : `[${name}]`, argument.description + choices] as const;
  });
  const options = command.options
    .filter(({ long }) => long !== "--json")
    .map(({ flags, description, mandatory, defaultValue, argChoices }) => {
      const isShown = ["string", "number"].includes(typeof defaultValue);
      const facts = [
        ...(mandatory ? ["required"] : []),
        ...(argChoices === undefined ? [] : [argChoices.map((choice) => `\`${choice}\``).join(", ")]),
        ...(isShown ? [`default \`${defaultValue as string | number}\``] : []),
      ];
      return [flags, description + (facts.length > 0 ? ` (${facts.join("; ")})` : "")] as const;
    });
  const rows = [...args, ...options].map(([name, text]) => `| \`${cell(name)}\` | ${cell(text)} |`);
  return rows.length === 0 ? [] : ["| argument or option | meaning |", "|---|---|", ...rows];
}

const commands = commandTree(createProgram("0")).filter(({ commands: below, parent }) => parent !== null && below.length === 0);
const sections = new Map(
  read(PAGE)
    .split(/^#{2,3} (?=`whetstone )/mu)
    .slice(1)
    .map((text) => [/^`whetstone ([^`]+)`/u.exec(text)?.[1] ?? "", text.split(/^## /mu)[0] ?? ""]),
);

describe("docs/reference/command-line.md", () => {
  it("has a section for every command, and for no other", () => {
    expect([...sections.keys()].toSorted()).toEqual(commands.map(pathOf).toSorted());
  });

  it.each(commands.map((command) => [pathOf(command), command] as const))("lists the arguments and options of %s", (path, command) => {
    const [, table = ""] = /^(\| argument or option [^]*?\n)\n/mu.exec(`${sections.get(path) ?? ""}\n\n`) ?? [];
    expect(table.trimEnd().split("\n").filter(Boolean)).toEqual(tableOf(command));
  });

  it.each(commands.map(pathOf))("has an example of %s that the command accepts", (path) => {
    const examples = [...(sections.get(path) ?? "").matchAll(/^npx whetstone (.*)$/gmu)].map(([, line = ""]) =>
      line.split(" #")[0]!.trim(),
    );
    expect(examples).not.toEqual([]);
    for (const example of examples) {
      const words = [...example.matchAll(/"([^"]*)"|(\S+)/gu)].map(([, quoted, plain]) => quoted ?? plain ?? "");
      const program = createProgram("0");
      const parsed: string[] = [];
      for (const each of commandTree(program)) each.action(() => void parsed.push(pathOf(each)));
      program.parse(words, { from: "user" });
      expect(parsed).toEqual([path]);
    }
  });

  it("has every command in the overview of the page, and the page in the documentation's index", () => {
    const names = [...new Set(commands.map((command) => pathOf(command).split(" ")[0]!))];
    const section = read("docs/reference/command-line.md").split("\n## Commands\n")[1]?.split("\n## ")[0] ?? "";
    expect(names.filter((name) => !section.includes(`\`${name}\``))).toEqual([]);
    expect(read("docs/README.md")).toContain("reference/command-line.md");
  });
});
