import { describe, expect, it } from "vitest";
import { GraderError } from "../../src/graders/index.ts";
import { gradedSample, type GraderSample } from "../../src/graders/sample.ts";
import { parseGraderTemplate, renderTemplate } from "../../src/graders/template.ts";

const ITEM = {
  answer: "Paris",
  count: 3,
  nested: { list: [{ "odd key": "x" }, "second"], "a.b": true, empty: {} },
  nothing: null,
};
const CALL = { id: "call-1", type: "function" as const, function: { name: "lookup", arguments: '{"city":"Paris"}' } };
const SAMPLE: GraderSample = { output_text: '{"a": {"b": [1, {"c": "deep"}]}, "0": "zero"}', output_tools: [CALL] };

function rendered(text: string, sample: GraderSample = SAMPLE, item: unknown = ITEM): string {
  return renderTemplate(parseGraderTemplate(text), { item, sample: gradedSample(sample) });
}

function errorOf(run: () => unknown): GraderError {
  try {
    run();
  } catch (error) {
    if (error instanceof GraderError) return error;
    throw error;
  }
  throw new Error("Expected a GraderError");
}

describe("a template", () => {
  it.each([
    ["no reference { } }}", "no reference { } }}"],
    ["{{ item.answer }}", "Paris"],
    ["{{item.answer}}, {{  item.answer  }}!", "Paris, Paris!"],
    ["{{ item.count }} {{ item.nothing }} {{ item.nested.empty }}", "3 null {}"],
    ["{{ item.nested.list[1] }}", "second"],
    ["{{ item.nested.list.1 }}", "second"],
    ['{{ item.nested.list[0]["odd key"] }}', "x"],
    ["{{ item.nested['a.b'] }}", "true"],
    ["{{ item['answer'] }}", "Paris"],
    ["{{ sample.output_json.a.b[1].c }}", "deep"],
    ["{{ sample.output_json.a.b }}", '[1,{"c":"deep"}]'],
    ["{{ sample.output_json.0 }}", "zero"],
    ["{{ sample.output_tools[0].function.name }}", "lookup"],
    ["{{ sample.output_tools }}", JSON.stringify([CALL])],
    ["{{ sample.choices[0].message.tool_calls[0].function.arguments }}", '{"city":"Paris"}'],
  ])("%s becomes %s", (text, expected) => {
    expect(rendered(text)).toBe(expected);
  });

  it("keeps the text of a sample as it is, also with braces", () => {
    expect(rendered("[{{ sample.output_text }}]", { output_text: "{{ item.answer }} $& \n" })).toBe("[{{ item.answer }} $& \n]");
  });

  it("rejects a value without a JSON form", () => {
    expect(errorOf(() => rendered("{{ item.run }}", SAMPLE, { run: () => 1 }))).toMatchObject({
      flag: "invalid_variable_error",
      message: "`{{ item.run }}`: expected a value with a JSON form, got a function",
    });
  });

  it("reads given choices", () => {
    const choices = [{ index: 0, message: { role: "assistant", content: "x" }, finish_reason: "length" }];
    expect(rendered("{{ sample.choices[0].finish_reason }}", { output_text: "x", choices })).toBe("length");
  });

  it.each([
    ["{{ item.answer", "Expected `{{` to be closed by `}}`, got `{{ item.answer`"],
    ["{{ }}", "Expected a template such as `{{ item.answer }}`"],
    ["{{ answer }}", "got `{{ answer }}`"],
    ["{{ items.answer }}", "got `{{ items.answer }}`"],
    ["{{ item }}", "Expected a path"],
    ["{{ item. }}", "Expected a path"],
    ["{{ item.a | upper }}", "Expected a path"],
    ["{{ item[-1] }}", "Expected a path"],
    ["{{ item.a[b] }}", "Expected a path"],
    ["{{ sample.text }}", "`sample` has no variable `text`; it has: output_text, output_json, output_tools, choices"],
    ["{{ sample[0] }}", "`sample` has no variable `0`"],
    ["{{ sample.output_audio.data }}", "audio is not supported"],
  ])("%s is rejected", (text, message) => {
    const error = errorOf(() => parseGraderTemplate(text));
    expect(error).toMatchObject({ code: "E_GRADER", flag: "invalid_variable_error" });
    expect(error.message).toContain(message);
  });

  it.each([
    ["{{ item.anser }}", "`{{ item.anser }}`: `item` has no field `anser`; it has `answer`, `count`, `nested`, `nothing`"],
    ["{{ item.nested.list[2] }}", "`item.nested.list` has no element `2`; it has 2 elements"],
    ["{{ item.nested.list.length }}", "`item.nested.list` has no element `length`"],
    ["{{ item.nested.list[0].x }}", "`item.nested.list[0]` has no field `x`; it has `odd key`"],
    ["{{ item.answer.length }}", "`item.answer` has no field `length`; it is a string"],
    ["{{ item.nothing.x }}", "`item.nothing` has no field `x`; it is null"],
    ["{{ item.nested.empty.x }}", "it has none"],
    ["{{ item.constructor.name }}", "`item` has no field `constructor`"],
    ["{{ item.__proto__ }}", "`item` has no field `__proto__`"],
  ])("%s names a field that the item lacks", (text, message) => {
    const error = errorOf(() => rendered(text));
    expect(error.flag).toBe("invalid_variable_error");
    expect(error.message).toContain(message);
  });

  it.each([
    ["{{ sample.output_json }}", "not JSON", "the text of the sample is not JSON"],
    ["{{ sample.output_json.a }}", "[".repeat(200), "the text of the sample is not JSON"],
    ["{{ sample.output_json.a }}", '{"b":1}', "`sample.output_json` has no field `a`; it has `b`"],
    ["{{ sample.output_json.a }}", "5", "`sample.output_json` has no field `a`; it is a number"],
    ["{{ sample.output_tools[0].function.name }}", "no call", "`sample.output_tools` has no element `0`; it has 0 elements"],
  ])("%s names a part that the sample %j lacks", (text, output, message) => {
    const error = errorOf(() => rendered(text, { output_text: output }));
    expect(error.flag).toBe("sample_parse_error");
    expect(error.message).toContain(message);
  });

  it("names at most 20 fields", () => {
    const item = Object.fromEntries(Array.from({ length: 25 }, (_, index) => [`field${index}`, index]));
    expect(errorOf(() => rendered("{{ item.x }}", SAMPLE, item)).message).toMatch(/`field19` and 5 more$/u);
  });
});
