import { expect, test } from "vitest";
import { EngineError, NoSpaceError } from "../../src/base/errors.ts";
import { isNoSpace } from "../../src/base/util/no-space.ts";

const withCode = (facts: object) => Object.assign(new Error("x"), facts);

test("recognizes a full disk in system errors, SQLite errors, its own errors and their causes", () => {
  for (const error of [
    withCode({ code: "ENOSPC" }),
    withCode({ code: "EDQUOT" }),
    withCode({ code: "ERR_SQLITE_ERROR", errcode: 13 }),
    withCode({ code: "ERR_SQLITE_ERROR", errcode: 4874 }),
    new NoSpaceError("full"),
    new EngineError("could not be saved", { cause: withCode({ code: "ENOSPC" }) }),
  ])
    expect(isNoSpace(error)).toBe(true);
});

test("does not recognize other errors as a full disk", () => {
  const circular = withCode({});
  circular.cause = circular;
  for (const error of [
    withCode({ code: "ENOENT" }),
    withCode({ code: "ERR_SQLITE_ERROR", errcode: 5 }),
    "ENOSPC",
    null,
    undefined,
    circular,
  ])
    expect(isNoSpace(error)).toBe(false);
});
