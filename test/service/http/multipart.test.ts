import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { formBoundary, readForm } from "../../../src/service/http/multipart.ts";

/** Pieces of a body, cut at these positions. */
async function* cut(bytes: Uint8Array, positions: readonly number[]): AsyncGenerator<Uint8Array> {
  const ends = [...new Set(positions.map((position) => position % (bytes.length + 1)))].toSorted((a, b) => a - b);
  let start = 0;
  for (const end of [...ends, bytes.length]) {
    yield bytes.subarray(start, end);
    start = end;
  }
}

async function read(body: AsyncIterable<Uint8Array>, boundary: string): Promise<(readonly [string, string | null, string])[]> {
  const parts: (readonly [string, string | null, string])[] = [];
  for await (const { name, filename, content } of readForm(body, boundary)) {
    const pieces: Uint8Array[] = [];
    for await (const piece of content) pieces.push(piece);
    parts.push([name, filename, Buffer.concat(pieces).toString("hex")]);
  }
  return parts;
}

const CLOSED = "--b\r\ncontent-disposition: form-data; name=a\r\n\r\n1\r\n--b--\r\n";
const bodyOf = (text: string) => cut(Buffer.from(text), []);

describe("readForm", () => {
  const field = fc.record({
    name: fc.string({ minLength: 1, maxLength: 10, unit: "grapheme" }),
    // A boundary inside of the contents must not end them.
    bytes: fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.constantFrom("\r\n--", "\r\n----form", "--\r\n").map((text) => Buffer.from(text)),
    ),
    filename: fc.option(fc.string({ minLength: 1, maxLength: 10, unit: "grapheme" })),
  });
  test.prop([fc.array(field, { minLength: 1, maxLength: 4 }), fc.array(fc.nat(), { maxLength: 20 })])(
    "returns the parts of a form that fetch has written, for any pieces of the body",
    async (fields, positions) => {
      const form = new FormData();
      for (const { name, bytes, filename } of fields)
        if (filename === null) form.append(name, Buffer.from(bytes).toString("latin1"));
        else form.append(name, new Blob([bytes as Uint8Array<ArrayBuffer>]), filename);
      const response = new Response(form);
      const boundary = formBoundary(response.headers.get("content-type")!);
      const body = new Uint8Array(await response.arrayBuffer());
      const expected = [...form.entries()].map(async ([name, value]) =>
        typeof value === "string"
          ? [written(name), null, Buffer.from(withLineBreaks(value)).toString("hex")]
          : [written(name), written(value.name), Buffer.from(await value.arrayBuffer()).toString("hex")],
      );
      expect(await read(cut(body, positions), boundary)).toEqual(await Promise.all(expected));
    },
  );

  it("skips the contents that nobody reads", async () => {
    const names: string[] = [];
    const body = new Response(form({ a: "1", b: "2", c: "3" }));
    const bytes = new Uint8Array(await body.arrayBuffer());
    for await (const { name } of readForm(cut(bytes, [50, 90]), formBoundary(body.headers.get("content-type")!))) names.push(name);
    expect(names).toEqual(["a", "b", "c"]);
  });

  it("skips the rest of a content whose reader stops early", async () => {
    const names: string[] = [];
    const body = new Response(form({ a: "x".repeat(300), b: "2", c: "3" }));
    const bytes = new Uint8Array(await body.arrayBuffer());
    for await (const { name, content } of readForm(cut(bytes, [150, 200, 250]), formBoundary(body.headers.get("content-type")!))) {
      names.push(name);
      for await (const _ of content) break;
    }
    expect(names).toEqual(["a", "b", "c"]);
  });

  it.each([
    ["a file name with the name of a parameter, before the name", 'filename="a; name=x.jsonl"; name="file"', "a; name=x.jsonl"],
    ["a file name with a line separator of Unicode", 'name="file"; filename="a\u2028b.jsonl"', "a\u2028b.jsonl"],
    ["escaped quotes", 'NAME="file"; FileName="a\\"b%22.jsonl"', 'a"b".jsonl'],
  ])("reads %s", async (_, parameters, filename) => {
    const text = `--b\r\nx: y\r\nContent-Disposition: form-data; ${parameters}\r\n\r\n1\r\n--b--\r\n`;
    expect(await read(bodyOf(text), "b")).toEqual([["file", filename, "31"]]);
  });

  it("closes the body when the reader stops", async () => {
    let isClosed = false;
    async function* source(): AsyncGenerator<Uint8Array> {
      try {
        yield Buffer.from(CLOSED);
      } finally {
        isClosed = true;
      }
    }
    for await (const _ of readForm(source(), "b")) break;
    expect(isClosed).toBe(true);
  });

  it.each([
    ["an empty body", "", /its last boundary/u],
    ["a body without the boundary", "text".repeat(10_000), /its first boundary/u],
    ["an end inside of the contents", CLOSED.slice(0, -7), /its last boundary/u],
    ["an end after a boundary", "--b", /its last boundary/u],
    ["text after a boundary", "--bb\r\n", /a line break after a boundary/u],
    ["headers without an end", `--b\r\n${"x".repeat(20_000)}`, /the end of the headers of a part within 16384 bytes/u],
    ["a part without a name", "--b\r\ncontent-type: text/plain\r\n\r\n1\r\n--b--", /a part with the header Content-Disposition/u],
  ])("rejects %s", async (_, text, message) => {
    await expect(read(bodyOf(text), "b")).rejects.toMatchObject({ code: "E_ARGUMENT", message: expect.stringMatching(message) });
  });

  it.each([undefined, "application/json", "multipart/form-data", `multipart/form-data; boundary=${"b".repeat(71)}`])(
    "rejects the type %s",
    (type) => {
      expect(() => formBoundary(type)).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param: "Content-Type" }));
    },
  );
});

function form(fields: Readonly<Record<string, string>>): FormData {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value);
  return data;
}

/** Names are sent with line breaks as CR LF, which the reader keeps. */
function written(name: string): string {
  return withLineBreaks(name);
}

function withLineBreaks(text: string): string {
  return text.replaceAll(/\r?\n|\r/gu, "\r\n");
}
