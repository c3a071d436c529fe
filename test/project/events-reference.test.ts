import { join } from "node:path";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { eventToDisk, type RecordedEvent } from "../../src/run/events.ts";
import { read, ROOT } from "./files.ts";

/** The members of the union type `name` in src/run/events.ts. */
function members(name: string): { readonly types: readonly ts.Type[]; readonly checker: ts.TypeChecker } {
  const path = join(ROOT, "src/run/events.ts");
  const program = ts.createProgram([path], { strict: true, target: ts.ScriptTarget.ESNext, noEmit: true });
  const checker = program.getTypeChecker();
  const alias = program
    .getSourceFile(path)
    ?.statements.find((node): node is ts.TypeAliasDeclaration => ts.isTypeAliasDeclaration(node) && node.name.text === name);
  if (alias === undefined) throw new Error(`Expected src/run/events.ts to have the type ${name}`);
  const type = checker.getTypeAtLocation(alias);
  return { types: type.isUnion() ? type.types : [type], checker };
}

/** Event → its fields, for each member of the union `name`. */
function union(name: string): Map<string, string[]> {
  const { types, checker } = members(name);
  return new Map(
    types.map((member) => {
      const properties = member.getProperties();
      const kind = properties.find((property) => property.name === "type");
      const literal = kind && checker.getTypeOfSymbol(kind);
      if (literal === undefined || !literal.isStringLiteral()) throw new Error(`A member of ${name} has no \`type\``);
      return [literal.value, properties.map((property) => property.name).filter((field) => field !== "type")];
    }),
  );
}

const [recorded, live] = [union("RecordedEventBody"), union("LiveEventBody")];

/** The cells of the rows below `## heading`. */
function rows(heading: string): string[][] {
  const section = read("docs/reference/events.md")
    .split(/^## /mu)
    .find((text) => text.startsWith(`${heading}\n`));
  const lines = section?.match(/^\| `.*$/gmu) ?? [];
  return lines.map((line) => line.split(/(?<!\\)\|/u).map((cell) => cell.trim()));
}

const names = (cell = ""): string[] => [...cell.matchAll(/`(\w[\w-]*)`/gu)].map((match) => match[1] ?? "");

describe("docs/reference/events.md", () => {
  it.each([
    ["Recorded", recorded],
    ["Live", live],
  ] as const)("lists every event with its fields, in the order of the source: %s", (heading, events) => {
    expect(events.size).toBeGreaterThan(1);
    expect(rows(heading).map(([, event, fields]) => [names(event)[0], names(fields)])).toEqual([...events]);
  });

  it("explains every field once, with its name in events.jsonl", () => {
    const fields = new Set(["seq", "time", "type", ...recorded.values(), ...live.values()].flat());
    const explained = rows("Fields").map(([, field, onDisk, text]) => ({ field: names(field)[0] ?? "", onDisk: names(onDisk)[0], text }));
    expect(explained.map(({ field }) => field).toSorted()).toEqual([...fields].toSorted());
    for (const { field, onDisk, text } of explained) {
      expect(Object.keys(eventToDisk({ [field]: 0 } as unknown as RecordedEvent))).toEqual([onDisk]);
      expect(text, field).not.toBe("");
    }
  });

  it("lists every reason for the end of a run", () => {
    const reasons = members("RunEndReason").types.map((type) => (type.isStringLiteral() ? type.value : ""));
    const text = rows("Fields").find(([, field]) => field === "`reason`")?.[3];
    for (const reason of reasons) expect(names(text)).toContain(reason);
  });
});
