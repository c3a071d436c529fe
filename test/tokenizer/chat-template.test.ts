import { setImmediate } from "node:timers/promises";
import { Script } from "node:vm";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { ArgumentError, DataError } from "../../src/errors.ts";
import { compileTemplate } from "../../src/tokenizer/chat-template.ts";

function caught(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  return undefined;
}

describe("compileTemplate", () => {
  it("renders variables, and treats undefined ones as absent", () => {
    const template = compileTemplate(
      "{{ a }}{% if b is defined %}b{% endif %}{% if c is none %}c{% endif %}{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}",
    );
    expect(template.render({ a: "A", b: undefined, c: null })).toBe("Ac135");
  });

  it("hands on the template's own message", () => {
    const error = caught(() => compileTemplate("{{ raise_exception('roles must alternate') }}").render({}));
    expect(error).toBeInstanceOf(ArgumentError);
    expect(error).toMatchObject({ message: expect.stringContaining("roles must alternate"), param: "messages" });
  });

  it("counts ranges as Python does", () => {
    const lengthOf = (args: string): string => compileTemplate(`{{ range(${args}) | length }}`).render({});
    expect(["5", "2, 5", "5, 2", "5, 0, -2", "0, 5, 2", "0"].map(lengthOf)).toEqual(["5", "3", "0", "3", "3", "0"]);
    expect(() => lengthOf("1, 2, 0")).toThrow(/step must not be zero/);
    expect(() => lengthOf("'x'")).toThrow(/expects integers/);
  });

  it("prints the date", () => {
    expect(compileTemplate("{{ strftime_now('%Y-%m-%d %%') }}").render({})).toMatch(/^\d{4}-\d{2}-\d{2} %$/);
  });

  it.each([
    ["a loop over a huge range", "{% for i in range(10**9) %}{% endfor %}", /more than 1000000 steps/],
    ["a huge negative range", "{{ range(0, -1000000000000, -1) | length }}", /more than 1000000 steps/],
    ["nested loops", "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}", /more than 1000000 steps/],
    [
      "a text that doubles",
      "{% set ns = namespace(x='abcdefgh') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      /text of more than 4194304/,
    ],
    [
      "a list that doubles",
      "{% set ns = namespace(x=[1,2]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      /more than 1000000 steps/,
    ],
    ["a macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", /./],
  ])("ends %s with an error, and the event loop goes on", async (_, source, message) => {
    const error = caught(() => compileTemplate(source, { timeoutMs: 60_000 }).render({}));
    expect(error).toBeInstanceOf(ArgumentError);
    expect((error as Error).message).toMatch(message);
    await setImmediate();
    expect(compileTemplate("fine").render({})).toBe("fine");
  });

  it("interrupts a template that meets no other limit when its time is up", async () => {
    const endless = compileTemplate("{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}", {
      maxWork: Number.POSITIVE_INFINITY,
      timeoutMs: 50,
    });
    const error = caught(() => endless.render({}));
    expect(error).toBeInstanceOf(ArgumentError);
    expect((error as Error).message).toContain("longer than 50 ms");
    await setImmediate();
    expect(compileTemplate("fine").render({})).toBe("fine");
  });

  it("starts a watchdog only for a rendering that does more than a little", () => {
    const template = compileTemplate("{% for i in range(rounds) %}{% for j in range(100) %}{% endfor %}{% endfor %}{{ text }}");
    const watchdogs = vi.spyOn(Script.prototype, "runInContext");
    onTestFinished(() => watchdogs.mockRestore());
    expect(template.render({ rounds: 3, text: "few" })).toBe("few");
    expect(watchdogs).not.toHaveBeenCalled();
    expect(template.render({ rounds: 1000, text: "many" })).toBe("many");
    expect(watchdogs).toHaveBeenCalledTimes(1);
    const long = "x".repeat(100_000);
    expect(template.render({ rounds: 3, text: long })).toBe(long);
    expect(watchdogs).toHaveBeenCalledTimes(2);
  });

  it("hands on an error of the template's own without trying again", () => {
    const template = compileTemplate("{{ raise_exception('no') }}");
    const watchdogs = vi.spyOn(Script.prototype, "runInContext");
    onTestFinished(() => watchdogs.mockRestore());
    expect(caught(() => template.render({}))).toMatchObject({ code: "E_ARGUMENT", param: "messages" });
    expect(watchdogs).not.toHaveBeenCalled();
  });

  it("limits the rendered text", () => {
    const template = compileTemplate("{{ a }}{{ a }}", { maxOutputLength: 10 });
    expect(template.render({ a: "12345" })).toBe("1234512345");
    expect(() => template.render({ a: "123456" })).toThrow(/text of more than 10 characters/);
  });

  it("refuses a template that is too long or does not parse", () => {
    expect(() => compileTemplate("x".repeat(65_537))).toThrow(DataError);
    expect(() => compileTemplate("{{ ")).toThrow(DataError);
    expect(() => compileTemplate(`{{ ${"(".repeat(60_000)} }}`)).toThrow(DataError);
  });
});
