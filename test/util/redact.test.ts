import { inspect } from "node:util";
import fc from "fast-check";
import { expect, test } from "vitest";
import { createRedactor } from "../../src/base/util/redact.ts";

/** Output of programs that contains a key. */
const WRITERS: readonly ((text: string) => string)[] = [
  (text) => text,
  (text) => JSON.stringify({ authorization: `Bearer ${text}` }),
  (text) => inspect({ headers: [`Bearer ${text}`] }, { breakLength: Infinity }),
  (text) => `https://host.example/v1?key=${encodeURIComponent(text)}`,
  (text) => new URLSearchParams({ key: text }).toString(),
  (text) => new Error(`No such model: '${text}'`).message,
];
const visible = fc.integer({ min: 0x21, max: 0x7e }).map((code) => String.fromCharCode(code));
const awkward = fc.constantFrom('"', "\\", "'", "%", "/", "<", "&", "?", "#");
/** Letters around the key: they show that the whole key is gone. */
const keys = fc.string({ unit: fc.oneof(visible, awkward), minLength: 6, maxLength: 40 }).map((text) => `a${text}z`);

test("removes a key in any quoting and URL encoding, and nothing else", () => {
  const writing = fc.array(fc.constantFrom(...WRITERS), { minLength: 1, maxLength: 3 });
  fc.assert(
    fc.property(keys, writing, (key, writers) => {
      const write = (text: string): string => writers.reduce((written, writer) => writer(written), text);
      const redacted = createRedactor([key])(`before ${write(key)} after`);
      expect(redacted).toMatch(/^before .*\[key\].* after$/u);
      // A key of this length is not in the text by chance, so only the text around the key remains.
      const [open, close] = `before ${write("KEYKEYKEY")} after`.split("KEYKEYKEY");
      const quotes = /["'`\\%\dA-F]/giu;
      expect(redacted.replaceAll(quotes, "")).toBe(`${open}[key]${close}`.replaceAll(quotes, ""));
    }),
    { numRuns: 100 },
  );
});

test("removes a key in the encodings of URL parsers and other JSON writers", () => {
  const key = `a"b\\c<d>e/f'g`;
  const redact = createRedactor([key]);
  expect(redact(`GET /v1/${new URL(`http://h/?${key}`).search}`)).toBe("GET /v1/?[key]");
  expect(redact(encodeURIComponent(key).toLowerCase())).toBe("[key]");
  expect(redact(JSON.stringify(key).replaceAll("<", "\\u003c").replaceAll(">", "\\u003e").replaceAll("'", "\\u0027"))).toBe('"[key]"');
});

test("removes several keys, the longest first, and keeps placeholders", () => {
  const redact = createRedactor(["key-0123", "key-0123456789", undefined, "EMPTY"]);
  expect(redact("key-0123456789 key-0123 EMPTY")).toBe("[key] [key] EMPTY");
  expect(createRedactor([undefined, "EMPTY"])("EMPTY")).toBe("EMPTY");
});
