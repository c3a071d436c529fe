import { describe, expect, it } from "vitest";
import { ConfigError } from "../../src/base/errors.ts";
import { toErrorResponse } from "../../src/service/http/errors.ts";
import { projectFiles, read } from "./files.ts";

const codes = [...read("src/base/errors.ts").matchAll(/^ {2}\| "(E_\w+)"/gmu)].map((match) => match[1] ?? "");

/** The rows of the table: code, class, status. */
const rows = [...read("docs/reference/errors.md").matchAll(/^\| `(E_\w+)` \| `(\w+)` \| ([^|]+?) \|(.*)$/gmu)].map((match) => ({
  code: match[1] ?? "",
  className: match[2] ?? "",
  status: match[3] ?? "",
  rest: match[4] ?? "",
}));

/** `class code` of every error class; a code may have more than one class, the table names the general one. */
const classes = projectFiles("src")
  .filter((file) => file.endsWith(".ts"))
  .flatMap((file) => [...read(file).matchAll(/class (\w+) extends \w*Error \{\s+readonly code = "(E_\w+)"/gu)])
  .map((match) => `${match[1]} ${match[2]}`);

describe("docs/reference/errors.md", () => {
  it("has one row per error code, in the same order", () => {
    expect(codes.length).toBeGreaterThan(15);
    expect(rows.map(({ code }) => code)).toEqual(codes);
  });

  it.each(rows)("fills every column for $code and names its class", ({ code, className, rest }) => {
    expect(classes).toContain(`${className} ${code}`);
    const columns = rest.split(" | ").map((column) => column.replaceAll(/^[ |]+|[ |]+$/gu, ""));
    expect(columns).toHaveLength(3);
    for (const column of columns) expect(column).not.toBe("");
  });

  it.each(rows.filter(({ status }) => status !== "–"))("states the status that the service answers for $code", async ({ code, status }) => {
    const error = Object.assign(new ConfigError("message"), { code });
    const response = toErrorResponse(error, { path: "/v1/preview/models", request: "r", logger: quiet });
    expect(response.status).toBe(Number(status.split(" ").at(-1)));
    await response.body?.cancel();
  });
});

const quiet = { info: () => {}, warn: () => {}, error: () => {} };
