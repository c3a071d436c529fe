/** JSON files of the project: a parser keeps only the last of two members with the same name, without an error. */
import ts from "typescript";
import { expect, it } from "vitest";
import { read } from "./files.ts";

/** Returns the names that occur twice in an object of a JSON text. */
function repeatedNames(text: string): string[] {
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isObjectLiteralExpression(node)) {
      const names = node.properties.map(({ name }) => name?.getText(file) ?? "");
      found.push(...names.filter((name, index) => names.indexOf(name) < index));
    }
    ts.forEachChild(node, visit);
  };
  const file = ts.parseJsonText("file.json", text);
  visit(file);
  return found;
}

it("a repeated name is found at any depth", () => {
  expect(repeatedNames('{"a": 1, "b": {"c": 1, "c": 2}, "a": 2}')).toEqual(['"a"', '"c"']);
});

it.each(["package.json", "knip.json", ".oxfmtrc.json", "template/tsconfig.json", "examples/deploy/grafana-dashboard.json"])(
  "%s has each name once",
  (path) => {
    expect(repeatedNames(read(path))).toEqual([]);
  },
);
