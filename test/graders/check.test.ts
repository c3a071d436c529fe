import { describe, expect, it } from "vitest";
import { ArgumentError, UnsupportedError } from "../../src/base/errors.ts";
import { checkGrader, checkItem } from "../../src/graders/index.ts";

const CHECK = { type: "string_check", name: "exact", operation: "eq", input: "{{ sample.output_text }}", reference: "{{ item.answer }}" };
const CLOSE = {
  type: "text_similarity",
  name: "close",
  evaluation_metric: "rouge_l",
  input: "{{ sample.output_text }}",
  reference: "{{ item.text }}",
};
const SCORE = { type: "score_model", name: "quality", model: "judge", input: [{ role: "user", content: "{{ sample.output_text }}" }] };
const LABEL = { ...SCORE, type: "label_model", name: "label", labels: ["good", "bad"], passing_labels: ["good"] };
const MULTI = { type: "multi", name: "all", graders: { a: CHECK, b: CLOSE }, calculate_output: "a + b" };

function errorOf(grader: unknown, at: readonly PropertyKey[] = []) {
  try {
    checkGrader(grader, { at });
  } catch (error) {
    if (error instanceof ArgumentError || error instanceof UnsupportedError) return error;
    throw error;
  }
  throw new Error("Expected the grader to be rejected");
}

describe("checkGrader", () => {
  it.each([CHECK, CLOSE, SCORE, LABEL, MULTI])("returns a valid grader of the type $type", (grader) => {
    expect(checkGrader(grader)).toEqual(grader);
  });

  it("accepts every field of the types", () => {
    const full = {
      ...SCORE,
      input: [
        { type: "message", role: "developer", content: "Be strict." },
        { role: "system", content: { type: "input_text", text: "One part." } },
        { role: "user", content: ["a", { type: "input_text", text: "{{ item.q }}" }] },
        { role: "assistant", content: [{ type: "output_text", text: "{{ sample.output_text }}" }] },
      ],
      range: [-1, 1],
      sampling_params: { max_completions_tokens: 100, reasoning_effort: "low", seed: 7, temperature: 0, top_p: null },
    };
    expect(checkGrader(full)).toEqual(full);
  });

  it("accepts the form of OpenAI's guide and of its types: a multi grader without a name, and one grader without a variable", () => {
    const { name: _, ...unnamed } = MULTI;
    expect(checkGrader(unnamed)).toEqual({ ...MULTI, name: "multi" });
    expect(checkGrader({ ...MULTI, graders: CHECK, calculate_output: "2 * exact" })).toMatchObject({ graders: { exact: CHECK } });
  });

  it.each<[string, object, string, string]>([
    ["python graders", { type: "python", name: "p", source: "def grade(sample, item): return 1" }, "type", "`python` graders"],
    [
      "python graders as a part",
      { ...MULTI, graders: { a: CHECK, b: { type: "python", source: "" } } },
      "graders.b.type",
      "`python` graders",
    ],
    ["the metric cosine", { ...CLOSE, evaluation_metric: "cosine" }, "evaluation_metric", "`cosine`"],
    [
      "the metric cosine as the only part",
      { ...MULTI, graders: { ...CLOSE, evaluation_metric: "cosine" } },
      "graders.evaluation_metric",
      "`cosine`",
    ],
    ["thresholds of evals", { ...CLOSE, pass_threshold: 0.5 }, "pass_threshold", "`pass_threshold`"],
    ["thresholds of a part", { ...MULTI, graders: { a: { ...SCORE, pass_threshold: 0 } } }, "graders.a.pass_threshold", "evals"],
    [
      "images",
      { ...SCORE, input: [{ role: "user", content: ["see", { type: "input_image", image_url: "https://x" }] }] },
      "input.0.content.1",
      "`input_image`",
    ],
    [
      "audio",
      { ...LABEL, input: [{ role: "user", content: { type: "input_audio", input_audio: { data: "", format: "wav" } } }] },
      "input.0.content",
      "`input_audio`",
    ],
    ["a multi grader in another one", { ...MULTI, graders: { a: MULTI } }, "graders.a", "inside another one"],
  ])("rejects %s by name", (_, grader, param, part) => {
    const error = errorOf(grader);
    expect(error).toMatchObject({ code: "E_UNSUPPORTED", param });
    expect(error.message).toContain(part);
    expect(errorOf(grader, ["method", "grader"]).param).toBe(`method.grader.${param}`);
  });

  it.each<[string, unknown, string, string]>([
    ["another value", "exact", "type", 'got `"exact"`'],
    ["an unknown type", { type: "endpoint" }, "type", "string_check, text_similarity, score_model, label_model, multi"],
    ["an inherited name as the type", { type: "toString" }, "type", 'got `"toString"`'],
    ["an unknown field", { ...CHECK, weight: 2 }, "weight", "unknown field `weight`; allowed: type, name, operation"],
    ["a missing field", { ...CHECK, reference: undefined }, "reference", "expected string"],
    ["an empty name", { ...CHECK, name: "" }, "name", "`name`"],
    ["an unknown operation", { ...CHECK, operation: "neq" }, "operation", '"eq"|"ne"|"like"|"ilike"'],
    ["an unknown metric", { ...CLOSE, evaluation_metric: "bleurt" }, "evaluation_metric", '"fuzzy_match"'],
    ["no message", { ...SCORE, input: [] }, "input", "`input`"],
    ["an unknown role", { ...SCORE, input: [{ role: "tool", content: "" }] }, "input.0.role", '"user"|"assistant"|"system"|"developer"'],
    ["a reversed range", { ...SCORE, range: [1, 0] }, "range", "expected the lowest score first"],
    ["a range of one number", { ...SCORE, range: [1] }, "range", "`range`"],
    ["an infinite range", { ...SCORE, range: [0, Infinity] }, "range.1", "`range.1`"],
    [
      "the name that OpenAI's chat completions have",
      { ...SCORE, sampling_params: { max_completion_tokens: 5 } },
      "sampling_params.max_completion_tokens",
      "max_completions_tokens",
    ],
    ["sampling parameters of a label model", { ...LABEL, sampling_params: {} }, "sampling_params", "unknown field"],
    ["repeated labels", { ...LABEL, labels: ["good", "good"] }, "labels", "expected different labels"],
    [
      "a passing label that is not a label",
      { ...LABEL, passing_labels: ["good", "fine"] },
      "passing_labels",
      'expected only entries of `labels`, got ["fine"]',
    ],
    ["a multi grader without parts", { ...MULTI, graders: {} }, "graders", "expected 1 to 64 graders, got 0"],
    ["a list of parts", { ...MULTI, graders: [CHECK] }, "graders", "expected record"],
    ["parts with the same name", { ...MULTI, graders: { a: CHECK, b: CHECK } }, "graders", 'different names, got ["exact"]'],
    ["a variable that no formula can name", { ...MULTI, graders: { "a-b": CHECK } }, "graders", 'got ["a-b"]'],
    ["a variable with the name of a function", { ...MULTI, graders: { max: CHECK } }, "graders.max", "got `max`"],
    ["an invalid part", { ...MULTI, graders: { a: { ...CHECK, input: 5 } } }, "graders.a.input", "expected string"],
    ["a template with an unknown variable", { ...CHECK, input: "{{ sample.text }}" }, "input", "`sample` has no variable `text`"],
    ["a template of a message", { ...SCORE, input: [{ role: "user", content: ["{{ item }}"] }] }, "input.0.content.0", "Expected a path"],
    [
      "a template of a text part",
      { ...SCORE, input: [{ role: "user", content: { type: "input_text", text: "{{" } }] },
      "input.0.content.text",
      "to be closed",
    ],
    [
      "a template of a part",
      { ...MULTI, graders: { a: { ...CHECK, reference: "{{ x }}" } }, calculate_output: "a" },
      "graders.a.reference",
      "{{ x }}",
    ],
    ["a formula that does not parse", { ...MULTI, calculate_output: "a +" }, "calculate_output", "got the end"],
    ["a formula with an unknown name", { ...MULTI, calculate_output: "a + exact" }, "calculate_output", "got `exact`; graders: a, b"],
  ])("rejects %s", (_, grader, param, part) => {
    const error = errorOf(grader);
    expect(error).toMatchObject({ code: "E_ARGUMENT", param });
    expect(error.message).toContain(part);
    expect(errorOf(grader, ["grader"]).param).toBe(`grader.${param}`);
  });
});

describe("checkItem", () => {
  it("accepts an item with every field that the templates name", () => {
    expect(() => checkItem(checkGrader(MULTI), { answer: "x", text: "y", more: 1 })).not.toThrow();
  });

  it("rejects an item that lacks a field, with the template and the fields that exist", () => {
    const check = () => checkItem(checkGrader(MULTI), { answer: "x", txt: "y" }, { at: ["rows", 3] });
    expect(check).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param: "rows.3" }));
    expect(check).toThrow("Invalid item at `rows.3`: `{{ item.text }}`: `item` has no field `text`; it has `answer`, `txt`");
    expect(() => checkItem(checkGrader(CHECK), null)).toThrow("`item` has no field `answer`; it is null");
  });
});
