import { expect, test } from "vitest";
import { formatBytes, formatDuration, parseBytes } from "../../src/base/util/units.ts";

test.each([
  [0, "0 bytes"],
  [1, "1 byte"],
  [999, "999 bytes"],
  [1000, "1.0 kB"],
  [999_949, "999.9 kB"],
  [999_950, "1.0 MB"],
  [12_345_678, "12.3 MB"],
  [2.5e12, "2.5 TB"],
  [5e15, "5,000.0 TB"],
])("%d bytes are %s", (bytes, text) => expect(formatBytes(bytes)).toBe(text));

test.each([
  ["0", 0],
  ["512 b", 512],
  ["500MB", 5e8],
  [" 1.5 gb ", 1.5e9],
  ["2TB", 2e12],
  ["", null],
  ["20 apples", null],
  ["24G", null],
  ["8GiB", null],
  ["-1GB", null],
] as const)("%j as a size is %d", (text, bytes) => expect(parseBytes(text)).toBe(bytes));

test.each([
  [0, "0 ms"],
  [999.4, "999 ms"],
  [999.6, "1.0 s"],
  [59_900, "59.9 s"],
  [59_960, "1 min 0 s"],
  [200_000, "3 min 20 s"],
  [7_500_000, "2 h 5 min"],
  [356_400_000, "4 d 3 h"],
])("%d ms are %s", (ms, text) => expect(formatDuration(ms)).toBe(text));
