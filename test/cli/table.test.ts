import { expect, test } from "vitest";
import { type TableColumn, fields, table } from "../../src/cli/table.ts";

interface Row {
  readonly id: string;
  readonly name: string;
  readonly size: string;
}

const COLUMNS: readonly TableColumn<Row>[] = [
  { title: "id", cell: ({ id }) => id, isWhole: true },
  { title: "name", cell: ({ name }) => name },
  { title: "size", cell: ({ size }) => size, align: "right" },
];
const ROWS: readonly Row[] = [
  { id: "0123456789", name: "local/demo/reverse", size: "9 MB" },
  { id: "abcdefghij", name: "short", size: "12.3 MB" },
];

test("a table shows whole cells without a limit, numbers aligned to the right", () => {
  expect(table(ROWS, COLUMNS, Number.POSITIVE_INFINITY)).toEqual([
    "id          name                   size",
    "0123456789  local/demo/reverse     9 MB",
    "abcdefghij  short               12.3 MB",
  ]);
});

test("a table that is too wide shortens its widest column with an ellipsis, but no identifier", () => {
  const lines = table(ROWS, COLUMNS, 30);
  expect(lines).toEqual(["id          name          size", "0123456789  local/de…     9 MB", "abcdefghij  short      12.3 MB"]);
  expect(table(ROWS, COLUMNS, 5)[1]).toBe("0123456789  loc…  9 MB");
});

test("a table measures wide characters in terminal columns and escapes control characters", () => {
  const wide = [{ id: "1", name: "模型模型模型", size: "1" }];
  expect(table(wide, COLUMNS, 16)).toEqual(["id  name    size", "1   模型…      1"]);
  expect(table([{ id: "1", name: "a\nb", size: "1" }], COLUMNS, 80)[1]).toContain("a\\u000ab");
});

test("fields align the values of one object", () => {
  expect(fields({ id: "1", "base model": "tiny" })).toEqual(["id          1", "base model  tiny"]);
});
