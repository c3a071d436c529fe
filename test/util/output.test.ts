import fc from "fast-check";
import { expect, test, vi } from "vitest";
import { encodeLine, logLine, logLines, printLine } from "../../src/base/util/output.ts";

/** Characters that end a line or that a terminal interprets instead of showing. */
const OBEYED = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}\p{Surrogate}]/u;

function written(stream: "stdout" | "stderr", write: () => void): string {
  const spy = vi.spyOn(process[stream], "write").mockReturnValue(true);
  try {
    write();
    return spy.mock.calls.map(([text]) => String(text)).join("");
  } finally {
    spy.mockRestore();
  }
}

test("encodes characters that end a line, move the cursor or reorder text, and leaves all others", () => {
  expect(encodeLine("a\r\nb\u001b[2Kc\u0085d\u2028e\u202Ef\u2066g\u007F")).toBe(
    String.raw`a\u000d\u000ab\u001b[2Kc\u0085d\u2028e\u202ef\u2066g\u007f`,
  );
  expect(encodeLine("x\uD800y")).toBe(String.raw`x\ud800y`);
  expect(encodeLine("GET /größe/模型/🦊 200")).toBe("GET /größe/模型/🦊 200");
  const anything = fc.string({ unit: fc.integer({ min: 0, max: 0x10ffff }).map((point) => String.fromCodePoint(point)) });
  fc.assert(
    fc.property(anything, (text) => {
      expect(encodeLine(text)).not.toMatch(OBEYED);
    }),
  );
});

test("does not change the meaning of JSON", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const json = JSON.stringify(value);
      expect(JSON.stringify(JSON.parse(encodeLine(json)))).toBe(json);
    }),
  );
});

test("writes one line for any text", () => {
  expect(written("stderr", () => logLine("GET /a\n2026-01-01T00:00:00Z error forged"))).toBe(
    "GET /a\\u000a2026-01-01T00:00:00Z error forged\n",
  );
  expect(written("stdout", () => printLine("reward 1\nreward 2"))).toBe("reward 1\\u000areward 2\n");
});

test("indents the lines of a stack trace, so that none looks like a separate log entry", () => {
  const trace = "Error: no\nerror: forged\u001b[A\n    at place";
  expect(written("stderr", () => logLines(trace))).toBe("Error: no\n  error: forged\\u001b[A\n      at place\n");
});
