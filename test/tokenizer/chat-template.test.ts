import { setImmediate } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { ArgumentError, DataError, UnsupportedError } from "../../src/base/errors.ts";
import { compileTemplate } from "../../src/text/tokenizer/chat-template.ts";
import { Meter } from "../../src/text/tokenizer/jinja/meter.ts";

function caught(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  return undefined;
}

describe("compileTemplate", () => {
  it("renders variables, and treats undefined ones as missing", () => {
    const template = compileTemplate(
      "{{ a }}{% if b is defined %}b{% endif %}{% if c is none %}c{% endif %}{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}",
    );
    expect(template.render({ a: "A", b: undefined, c: null })).toBe("Ac135");
  });

  it("reports the template's own error message", () => {
    const error = caught(() => compileTemplate("{{ raise_exception('roles must alternate') }}").render({}));
    expect(error).toBeInstanceOf(ArgumentError);
    expect(error).toMatchObject({ message: expect.stringContaining("roles must alternate"), param: null });
  });

  it("has the same ranges as Python", () => {
    const lengthOf = (args: string): string => compileTemplate(`{{ range(${args}) | length }}`).render({});
    expect(["5", "2, 5", "5, 2", "5, 0, -2", "0, 5, 2", "0"].map(lengthOf)).toEqual(["5", "3", "0", "3", "3", "0"]);
    expect(() => lengthOf("1, 2, 0")).toThrow(/arg 3 must not be zero/);
    expect(() => lengthOf("'x'")).toThrow(/cannot be interpreted as an integer/);
  });

  it("knows the names that it reads, at any depth, and not those that it only assigns", () => {
    const source = `{%- macro m(p, q=dflt) -%}{{ p.attribute | default(filtered) }}{%- endmacro -%}
      {%- for item in items if keep -%}{%- if flag is defined and loop.first -%}{{ m(item[key]) ~ 'text' }}{%- endif -%}{%- endfor -%}
      {%- set only_set = 1 -%}{%- set ns = namespace(v=start) -%}{%- set ns.member = 2 -%}`;
    const { names } = compileTemplate(source);
    for (const name of ["dflt", "filtered", "items", "keep", "flag", "key", "start"]) expect(names).toContain(name);
    for (const name of ["only_set", "attribute", "member", "text", "q", "v"]) expect(names).not.toContain(name);
  });

  it("prints the date", () => {
    expect(compileTemplate("{{ strftime_now('%Y-%m-%d %%') }}").render({})).toMatch(/^\d{4}-\d{2}-\d{2} %$/);
  });

  it.each([
    ["a loop over a huge range", "{% for i in range(10**9) %}{% endfor %}", /Range too big/],
    ["a huge negative range", "{{ range(0, -1000000000000, -1) | length }}", /Range too big/],
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
    ["a macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", /nest more than 150 deep/],
    [
      "a long search without luck",
      "{% for i in range(9999) %}{% set x = ('a' * 999999).find('aaab') %}{% endfor %}",
      /more than 1000000 steps/,
    ],
    [
      "a list that holds itself twice",
      "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      /more than 1000000 steps/,
    ],
    [
      "a value nested without end",
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
      /nested too deeply/,
    ],
  ])("ends %s with an error, without blocking the event loop", async (_, source, message) => {
    const error = caught(() => compileTemplate(source).render({}));
    expect(error).toBeInstanceOf(ArgumentError);
    expect((error as Error).message).toMatch(message);
    await setImmediate();
    expect(compileTemplate("fine").render({})).toBe("fine");
  });

  it.each([
    ["`~`", `{% set x = 'a' * 4194304 %}{{ ${Array.from({ length: 120 }, () => "x").join(" ~ ")} }}`],
    ["`%` with widths", "{{ ('%9999d' * 50000) % ((1,) * 50000) }}"],
    ["`%` with long texts", "{% set x = 'a' * 4194304 %}{{ ('%s' * 1000) % ((x,) * 1000) }}"],
    ["`format` with long texts", "{% set x = 'a' * 4194304 %}{{ ('{0}' * 1000).format(x) }}"],
    ["`format` with widths", "{{ ('{0:9999}' * 50000).format(1) }}"],
    ["a printed list", "{{ [('a' * 4194000)] * 50 }}"],
    ["a printed dict", `{% set x = 'a' * 4194000 %}{{ {${Array.from({ length: 50 }, (_, key) => `${key}: x`).join()}} }}`],
    ["a printed view", `{% set x = 'a' * 4194000 %}{{ {${Array.from({ length: 50 }, (_, key) => `${key}: x`).join()}}.values() }}`],
    ["`tojson` with escapes", "{{ ('\u03a3' * 999999) | tojson(ensure_ascii=true) }}"],
    ["`tojson` of a list", "{{ ([('a' * 4194000)] * 50) | tojson }}"],
    ["`tojson` of a dict", `{% set x = 'a' * 4194000 %}{{ {${Array.from({ length: 50 }, (_, key) => `${key}: x`).join()}} | tojson }}`],
    ["`tojson` with long separators", "{{ ([1] * 1000) | tojson(separators=(',' * 999999, ':')) }}"],
    ["`tojson` with a long indentation", "{{ ([1] * 1000) | tojson(indent=' ' * 999999) }}"],
    [
      "`tojson` with long separators of keys",
      "{{ dict([[1, 1], [2, 2], [3, 3], [4, 4], [5, 5], [6, 6]]) | tojson(separators=(',', ':' * 999999)) }}",
    ],
  ])("checks the length of a text before %s creates it", (_, source) => {
    const template = compileTemplate(source);
    const chargeResult = vi.spyOn(Meter.prototype, "chargeResult");
    const joined = vi.spyOn(Array.prototype, "join");
    const error = caught(() => template.render({}));
    const longest = Math.max(
      ...chargeResult.mock.calls.map(([text]) => text.length),
      ...joined.mock.results.map(({ value }) => String(value).length),
    );
    vi.restoreAllMocks();
    expect((error as Error).message).toMatch(/text of more than 4194304/);
    expect(longest).toBeLessThanOrEqual(4_194_304);
  });

  it.each([
    "strftime_now(x)",
    "strftime_now('%A' * 1000000)",
    "x is lower",
    "x is upper",
    "x.zfill(1)",
    "x.center(1)",
    "x[-1]",
    "'a'.strip(x)",
    "x | trim('b')",
    "x | safe | length",
    "[x] | max",
    "[x] | sort",
    "[x] | unique | list",
    "[{'a': x}] | groupby('a')",
    "{'a': x} | dictsort(by='value')",
  ])("counts the steps of `%s` by the length of its text", (expression) => {
    const source = `{% set x = '\u03a3' * 1000000 %}{% for i in range(9999) %}{% set y = ${expression} %}{% endfor %}`;
    expect(() => compileTemplate(source).render({})).toThrow(/more than 1000000 steps/);
  });

  it("limits the precision of an integer", () => {
    expect(() => compileTemplate("{{ '%.999999999d' % 1 }}").render({})).toThrow(/a precision of more than 10000/);
  });

  it("truncates long texts to a precision without reading them completely", () => {
    // Reading a gigabyte of text would exceed the test's deadline.
    const [x, cut] = ["{% set x = '\u{1f44d}a' * 1000000 %}", "\u{1f44d}".repeat(1000)];
    expect(compileTemplate(`${x}{{ ('%.1s' * 1000) % ((x,) * 1000) }}`).render({})).toBe(cut);
    expect(compileTemplate(`${x}{{ ('{0:.1}' * 1000).format(x) }}`).render({})).toBe(cut);
  });

  it("ends at the same step every time", () => {
    const template = compileTemplate("{% for i in range(rounds) %}{{ i }}{% endfor %}", { maxWork: 1000 });
    const renders = (rounds: number): boolean => caught(() => template.render({ rounds })) === undefined;
    const first = Array.from({ length: 500 }, (_, rounds) => renders(rounds)).indexOf(false);
    expect(first).toBeGreaterThan(0);
    expect([renders(first - 1), renders(first), renders(first - 1)]).toEqual([true, false, true]);
  });

  it("reports an unsupported construct when it is rendered, not before", () => {
    const template = compileTemplate("{% if fancy %}{{ 'a' | urlize }}{% endif %}plain");
    expect(template.render({ fancy: false })).toBe("plain");
    const error = caught(() => template.render({ fancy: true }));
    expect(error).toBeInstanceOf(UnsupportedError);
    expect(error).toMatchObject({ message: expect.stringContaining("`urlize`"), param: null });
    expect(() => compileTemplate("a\n{% include 'x' %}")).toThrow(/line 2.*'include' is not supported/);
  });

  it("rejects variables that JSON cannot represent, and deeply nested ones", () => {
    expect(() => compileTemplate("{{ f }}").render({ f: () => 1 })).toThrow(/expected JSON values/i);
    const deep: unknown[] = [];
    let inner = deep;
    for (let depth = 0; depth < 100_000; depth++) inner.push((inner = []));
    expect(() => compileTemplate("{{ deep }}").render({ deep })).toThrow(/nested at most/);
  });

  it("refuses arithmetic with integers beyond 2**53, also of an integer that squares", () => {
    const template = compileTemplate("{% set ns = namespace(x=3) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}");
    const error = caught(() => template.render({}));
    expect(error).toBeInstanceOf(UnsupportedError);
    expect(error).toMatchObject({ message: expect.stringContaining("arithmetic with integers beyond 2**53 is not supported") });
  });

  it("can access only its variables", () => {
    for (const name of ["constructor", "__proto__", "toString", "hasOwnProperty", "prototype"]) {
      for (const value of ["{}", "[]", "''", "1", "namespace()", "range(1)", "dict"]) {
        expect(compileTemplate(`{{ ${value}.${name} is defined }}{{ ${value}['${name}'] is defined }}`).render({})).toBe("FalseFalse");
      }
    }
    expect(compileTemplate("{{ constructor is defined }}{{ globalThis is defined }}").render({})).toBe("FalseFalse");
  });

  it("limits the length of the rendered text", () => {
    const template = compileTemplate("{{ a }}{{ a }}", { maxOutputLength: 10 });
    expect(template.render({ a: "12345" })).toBe("1234512345");
    expect(() => template.render({ a: "123456" })).toThrow(/text of more than 10 characters/);
  });

  it("rejects a template that is too long or does not parse", () => {
    expect(() => compileTemplate("x".repeat(65_537))).toThrow(DataError);
    expect(() => compileTemplate("{{ ")).toThrow(DataError);
    expect(() => compileTemplate(`{{ ${"(".repeat(60_000)} }}`)).toThrow(DataError);
  });
});
