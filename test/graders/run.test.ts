import { describe, expect, it } from "vitest";
import { graderRun, type Grader } from "../../src/base/schema/index.ts";
import { runGrader, textSimilarity } from "../../src/graders/index.ts";

const CHECK = {
  type: "string_check",
  name: "exact",
  operation: "eq",
  input: "{{ sample.output_text }}",
  reference: "{{ item.answer }}",
} as const;
const EMAIL = { ...CHECK, name: "email_grader", input: "{{ sample.output_json.email }}", reference: "{{ item.email }}" } as const;
const NAME = {
  type: "text_similarity",
  name: "name_grader",
  evaluation_metric: "fuzzy_match",
  input: "{{ sample.output_json.name }}",
  reference: "{{ item.name }}",
} as const;
const CONTACT: Grader = { type: "multi", name: "contact", graders: { name: NAME, email: EMAIL }, calculate_output: "(name + email) / 2" };

const NO_ERRORS = {
  formula_parse_error: false,
  invalid_variable_error: false,
  model_grader_parse_error: false,
  model_grader_refusal_error: false,
  model_grader_server_error: false,
  model_grader_server_error_details: null,
  other_error: false,
  python_grader_runtime_error: false,
  python_grader_runtime_error_details: null,
  python_grader_server_error: false,
  python_grader_server_error_type: null,
  sample_parse_error: false,
  truncated_observation_error: false,
  unresponsive_reward_error: false,
  details: [],
};

describe("runGrader", () => {
  it.each([
    ["eq", "Paris", "Paris", 1],
    ["eq", "paris", "Paris", 0],
    ["ne", "paris", "Paris", 1],
    ["ne", "Paris", "Paris", 0],
    ["like", "It is Paris.", "Paris", 1],
    ["like", "It is paris.", "Paris", 0],
    ["like", "Par", "Paris", 0],
    ["ilike", "It is PARIS.", "Paris", 1],
    ["ilike", "It is Rome.", "Paris", 0],
  ] as const)("scores %s of %j and %j with %d", async (operation, text, answer, reward) => {
    const run = await runGrader({ ...CHECK, operation }, { item: { answer }, sample: { output_text: text } });
    expect(run).toEqual({
      reward,
      sub_rewards: {},
      model_grader_token_usage_per_model: {},
      metadata: {
        name: "exact",
        type: "string_check",
        errors: NO_ERRORS,
        execution_time: expect.any(Number),
        scores: {},
        token_usage: null,
        sampled_model_name: null,
      },
    });
    expect(graderRun.parse(run)).toEqual(run);
  });

  it("scores a text metric of rendered templates", async () => {
    const grader: Grader = { ...NAME, evaluation_metric: "rouge_2", input: "{{ sample.output_text }}!", reference: "the {{ item.x }} sat" };
    const { reward } = await runGrader(grader, { item: { x: "cat" }, sample: { output_text: "the cat sat down" } });
    expect(reward).toBe(textSimilarity("rouge_2", "the cat sat down!", "the cat sat"));
    expect(reward).toBeGreaterThan(0.5);
  });

  it("computes the formula of a multi grader, with the scores by variable and by name", async () => {
    const item = { name: "John Doe", email: "john.doe@example.com" };
    const sample = { output_text: JSON.stringify({ name: "Jon Doe", email: "john.doe@example.com" }) };
    const { reward, sub_rewards: parts, metadata } = await runGrader(CONTACT, { item, sample });
    const close = textSimilarity("fuzzy_match", "Jon Doe", "John Doe");
    expect(parts).toEqual({ name: close, email: 1 });
    expect(metadata).toMatchObject({ name: "contact", type: "multi", scores: { name_grader: close, email_grader: 1 }, errors: NO_ERRORS });
    expect(reward).toBe((close + 1) / 2);
  });

  it("runs without an item if no template names one", async () => {
    const { reward } = await runGrader({ ...CHECK, reference: "yes" }, { sample: { output_text: "yes" } });
    expect(reward).toBe(1);
  });

  it("reports a field that the item lacks", async () => {
    const { reward, metadata } = await runGrader(CHECK, { item: { anser: "x" }, sample: { output_text: "x" } });
    expect(reward).toBe(0);
    const details = ["Grader `exact`: `{{ item.answer }}`: `item` has no field `answer`; it has `anser`"];
    expect(metadata.errors).toEqual({ ...NO_ERRORS, invalid_variable_error: true, details });
  });

  it("scores parts with 0 that the sample does not allow to compute, and reports them", async () => {
    const item = { name: "John Doe", email: "john.doe@example.com" };
    const { reward, sub_rewards: parts, metadata } = await runGrader(CONTACT, { item, sample: { output_text: '{"name": "John Doe"}' } });
    expect(parts).toEqual({ name: 1, email: 0 });
    expect(reward).toBe(0.5);
    const details = ["Grader `email_grader`: `{{ sample.output_json.email }}`: `sample.output_json` has no field `email`; it has `name`"];
    expect(metadata.errors).toEqual({ ...NO_ERRORS, sample_parse_error: true, details });
  });

  it.each([
    ["(name +", "formula_parse_error", "got the end"],
    ["name + mail", "invalid_variable_error", "got `mail`"],
  ])("reports the formula %s instead of running a part", async (formula, flag, part) => {
    const sample = { output_text: "not JSON" };
    const { reward, sub_rewards: parts, metadata } = await runGrader({ ...CONTACT, calculate_output: formula } as Grader, { sample });
    expect([reward, parts]).toEqual([0, {}]);
    expect(metadata.errors).toEqual({ ...NO_ERRORS, [flag]: true, details: [expect.stringContaining(part)] });
  });

  it.each(["1 / email", "log(email)", "sqrt(email - 1)", "exp(1000)"])("reports the formula %s without a finite value", async (formula) => {
    const item = { name: "a", email: "b" };
    const sample = { output_text: JSON.stringify({ name: "a", email: "other" }) };
    const { reward, metadata } = await runGrader({ ...CONTACT, calculate_output: formula } as Grader, { item, sample });
    expect(reward).toBe(0);
    const details = [expect.stringMatching(/^Grader `contact`: Expected a finite value of .* for name = 1, email = 0$/u)];
    expect(metadata.errors).toEqual({ ...NO_ERRORS, formula_parse_error: true, details });
  });

  it("reports texts that are too long for the metric", async () => {
    const grader: Grader = { ...NAME, input: "{{ sample.output_text }}", reference: "{{ item.name }}" };
    const text = "a".repeat(20_000);
    const { reward, metadata } = await runGrader(grader, { item: { name: text }, sample: { output_text: text } });
    expect(reward).toBe(0);
    expect(metadata.errors).toEqual({
      ...NO_ERRORS,
      other_error: true,
      details: [expect.stringContaining("`name_grader`: Expected two texts")],
    });
  });

  it("reports a template that does not parse", async () => {
    const { metadata } = await runGrader({ ...CHECK, input: "{{ answer }}" }, { item: {}, sample: { output_text: "" } });
    expect(metadata.errors).toMatchObject({ invalid_variable_error: true, details: [expect.stringContaining("{{ answer }}")] });
  });

  it("reports a sample that was cut off, and grades it as it is", async () => {
    const choices = [{ index: 0, message: { role: "assistant", content: "Par" }, finish_reason: "length" }];
    const { reward, metadata } = await runGrader(CHECK, { item: { answer: "Par" }, sample: { output_text: "Par", choices } });
    expect(reward).toBe(1);
    expect(metadata.errors).toEqual({ ...NO_ERRORS, truncated_observation_error: true });
  });

  it.each([
    [{ type: "python", name: "p", source: "" }, "E_UNSUPPORTED", "type"],
    [{ ...CHECK, operation: "contains" }, "E_ARGUMENT", "operation"],
  ])("rejects %j before it reads the sample", async (grader, code, param) => {
    const sample = { output_text: "" };
    await expect(runGrader(grader as unknown as Grader, { sample })).rejects.toMatchObject({ code, param });
  });

  it("rejects with the reason of an aborted signal", async () => {
    const reason = new Error("stopped");
    await expect(runGrader(CHECK, { item: {}, sample: { output_text: "" } }, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });
});
