import { describe, expect, it } from "vitest";
import { UnavailableError } from "../../src/base/errors.ts";
import type { ChatCompletion, ChatCompletionRequest, Grader } from "../../src/base/schema/index.ts";
import { runGrader, type GraderComplete } from "../../src/graders/index.ts";
import { connect } from "../../src/index.ts";
import { startTestService } from "../../src/testing/index.ts";

const SCORE = {
  type: "score_model",
  name: "quality",
  model: "judge",
  input: [
    { role: "system", content: "Compare with {{ item.answer }}." },
    { role: "user", content: ["Answer:", { type: "input_text", text: "{{ sample.output_text }}" }] },
  ],
  range: [-1, 1],
} satisfies Grader;
const LABEL = {
  type: "label_model",
  name: "tone",
  model: "judge",
  input: [{ role: "user", content: "{{ sample.output_text }}" }],
  labels: ["polite", "neutral", "rude"],
  passing_labels: ["polite", "neutral"],
} satisfies Grader;
const INPUT = { item: { answer: "Paris" }, sample: { output_text: "It is Paris." } };

function completionOf(content: string | null, change: object = {}, message: object = {}): ChatCompletion {
  return {
    id: "chatcmpl-1",
    object: "chat.completion",
    created: 0,
    model: "judge-2026",
    choices: [{ index: 0, message: { role: "assistant", content, ...message }, finish_reason: "stop", ...change }],
    usage: { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110, prompt_tokens_details: { cached_tokens: 64 } },
  };
}

function answer(result: unknown, steps: unknown = [{ description: "compare", conclusion: "equal" }]): string {
  return JSON.stringify({ steps, result });
}

/** Returns a model that answers every request with a completion, with its requests. */
function modelOf(completion: ChatCompletion | ((request: ChatCompletionRequest) => ChatCompletion)) {
  const requests: ChatCompletionRequest[] = [];
  const complete: GraderComplete = async (request) => {
    requests.push(request);
    return typeof completion === "function" ? completion(request) : completion;
  };
  return { requests, complete };
}

describe("a score model grader", () => {
  it("sends the rendered messages, and asks for steps and a result", async () => {
    const { requests, complete } = modelOf(completionOf(answer(0.5)));
    const sampling = { max_completions_tokens: 50, reasoning_effort: "low", seed: 7, temperature: 0, top_p: null } as const;
    await runGrader({ ...SCORE, sampling_params: sampling }, INPUT, { complete });
    const step = {
      type: "object",
      properties: { description: { type: "string" }, conclusion: { type: "string" } },
      required: ["description", "conclusion"],
      additionalProperties: false,
    };
    const schema = {
      type: "object",
      properties: { steps: { type: "array", items: step }, result: { type: "number" } },
      required: ["steps", "result"],
      additionalProperties: false,
    };
    expect(requests).toEqual([
      {
        model: "judge",
        messages: [
          { role: "system", content: "Compare with Paris." },
          {
            role: "user",
            content: [
              { type: "text", text: "Answer:" },
              { type: "text", text: "It is Paris." },
            ],
          },
        ],
        response_format: { type: "json_schema", json_schema: { name: "score", strict: true, schema } },
        max_completion_tokens: 50,
        reasoning_effort: "low",
        seed: 7,
        temperature: 0,
      },
    ]);
  });

  it("returns the score, the tokens and the name of the model that answered", async () => {
    const {
      reward,
      metadata,
      model_grader_token_usage_per_model: usage,
    } = await runGrader(SCORE, INPUT, modelOf(completionOf(answer(0.5))));
    expect(reward).toBe(0.5);
    expect(usage).toEqual({ "judge-2026": { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110, cached_tokens: 64 } });
    expect(metadata).toMatchObject({ token_usage: 110, sampled_model_name: "judge-2026", errors: { details: [] } });
  });

  it.each([
    [5, [-1, 1], 1],
    [-7.5, [-1, 1], -1],
    [0.25, [-1, 1], 0.25],
    [5, undefined, 1],
    [-1, undefined, 0],
    [7, [1, 10], 7],
  ])("moves the score %d into the range %j: %d", async (result, range, reward) => {
    const { range: _, ...rest } = SCORE;
    const grader = range === undefined ? rest : { ...rest, range };
    expect((await runGrader(grader, INPUT, modelOf(completionOf(answer(result, []))))).reward).toBe(reward);
  });

  it.each([
    ["text", "0.5"],
    ["JSON in a fence", `\`\`\`json\n${answer(0.5)}\n\`\`\``],
    ["a score as text", answer("0.5")],
    ["no score", answer(null)],
    ["no steps", JSON.stringify({ result: 0.5 })],
    ["steps of another form", answer(0.5, ["compared"])],
    ["further members", JSON.stringify({ steps: [], result: 0.5, confidence: 1 })],
  ])("accepts no answer with %s, and counts its tokens", async (_, content) => {
    const { reward, metadata } = await runGrader(SCORE, INPUT, modelOf(completionOf(content)));
    expect(reward).toBe(0);
    expect(metadata.errors.model_grader_parse_error).toBe(true);
    expect(metadata.errors.details).toEqual([expect.stringMatching(/^Grader `quality`: Expected `\{"steps": \[…\], "result": …\}`/u)]);
    expect(metadata.token_usage).toBe(110);
  });

  it.each<[string, ChatCompletion, string, string]>([
    ["an answer that was cut off", completionOf(answer(1), { finish_reason: "length" }), "model_grader_parse_error", "cut off"],
    ["a refusal", completionOf(null, {}, { refusal: "I cannot." }), "model_grader_refusal_error", "I cannot."],
    ["a filtered answer", completionOf("", { finish_reason: "content_filter" }), "model_grader_refusal_error", "refused"],
    ["an empty answer", completionOf(""), "unresponsive_reward_error", "empty"],
    ["an answer without choices", { ...completionOf(""), choices: [] }, "unresponsive_reward_error", "empty"],
  ])("reports %s", async (_, completion, flag, part) => {
    const { reward, metadata } = await runGrader(SCORE, INPUT, modelOf(completion));
    expect(reward).toBe(0);
    const flags = Object.entries(metadata.errors).filter(([, value]) => value === true);
    expect(flags).toEqual([[flag, true]]);
    expect(metadata.errors.details).toEqual([expect.stringContaining(part)]);
  });

  it("reports a failed request with its message", async () => {
    const complete = () => Promise.reject(new UnavailableError("The sampler restarts"));
    const { reward, metadata } = await runGrader(SCORE, INPUT, { complete });
    expect(reward).toBe(0);
    expect(metadata).toMatchObject({ token_usage: null, sampled_model_name: null });
    const message = "Grader `quality`: The model did not answer: The sampler restarts";
    expect(metadata.errors).toMatchObject({
      model_grader_server_error: true,
      model_grader_server_error_details: message,
      details: [message],
    });
  });

  it("reports a timeout of the model as a missing answer", async () => {
    const complete = () => Promise.reject(new DOMException("took too long", "TimeoutError"));
    const { metadata } = await runGrader(SCORE, INPUT, { complete });
    expect(metadata.errors).toMatchObject({ unresponsive_reward_error: true, model_grader_server_error: false });
  });

  it("rejects with the signal's reason, although the model never answers, and passes the signal on", async () => {
    const controller = new AbortController();
    const signals: (AbortSignal | undefined)[] = [];
    const complete: GraderComplete = (_, { signal }) => {
      signals.push(signal);
      return new Promise(() => undefined);
    };
    const running = runGrader(SCORE, INPUT, { complete, signal: controller.signal });
    const reason = new Error("stopped");
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
    expect(signals).toEqual([controller.signal]);
  });

  it("asks no model if a template names a field that the item lacks", async () => {
    const { requests, complete } = modelOf(completionOf(answer(1)));
    const { metadata } = await runGrader(SCORE, { ...INPUT, item: {} }, { complete });
    expect(metadata.errors.invalid_variable_error).toBe(true);
    expect(requests).toEqual([]);
  });

  it("needs `complete`, also as a part", async () => {
    const expected = { code: "E_ARGUMENT", param: "complete", message: expect.stringContaining("`quality`") };
    await expect(runGrader(SCORE, INPUT)).rejects.toMatchObject(expected);
    const multi: Grader = { type: "multi", name: "all", graders: { quality: SCORE }, calculate_output: "quality" };
    await expect(runGrader(multi, INPUT)).rejects.toMatchObject(expected);
  });
});

describe("a label model grader", () => {
  it.each([
    ["polite", 1],
    ["neutral", 1],
    ["rude", 0],
  ])("scores the label %s with %d, and lets the model choose among the labels", async (label, reward) => {
    const { requests, complete } = modelOf(completionOf(answer(label)));
    expect((await runGrader(LABEL, INPUT, { complete })).reward).toBe(reward);
    expect(requests[0]?.response_format).toMatchObject({
      json_schema: { name: "label", schema: { properties: { result: { type: "string", enum: LABEL.labels } } } },
    });
  });

  it("accepts no other label", async () => {
    const { reward, metadata } = await runGrader(LABEL, INPUT, modelOf(completionOf(answer("friendly"))));
    expect(reward).toBe(0);
    expect(metadata.errors.model_grader_parse_error).toBe(true);
  });
});

describe("a multi grader with models", () => {
  const exact = { type: "string_check", name: "exact", operation: "ilike", input: "{{ sample.output_text }}", reference: "paris" } as const;
  const MULTI: Grader = {
    type: "multi",
    name: "all",
    graders: { quality: SCORE, tone: { ...LABEL, model: "small" }, exact },
    calculate_output: "0.5 * quality + 0.25 * tone + 0.25 * exact",
  };
  const perModel = (request: ChatCompletionRequest) => ({
    ...completionOf(request.model === "small" ? answer("polite") : answer(0.5)),
    model: request.model ?? "",
  });

  it("adds up the tokens per model", async () => {
    const run = await runGrader(MULTI, INPUT, modelOf(perModel));
    expect(run).toMatchObject({ reward: 0.75, sub_rewards: { quality: 0.5, tone: 1, exact: 1 } });
    const usage = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110, cached_tokens: 64 };
    expect(run.model_grader_token_usage_per_model).toEqual({ judge: usage, small: usage });
    expect(run.metadata).toMatchObject({ token_usage: 220, sampled_model_name: "judge" });
    const twice = await runGrader({ ...MULTI, graders: { ...MULTI.graders, tone: LABEL } }, INPUT, modelOf(completionOf(answer("polite"))));
    expect(twice.model_grader_token_usage_per_model).toEqual({
      "judge-2026": { prompt_tokens: 200, completion_tokens: 20, total_tokens: 220, cached_tokens: 128 },
    });
  });

  it("names the part that failed, and scores it with 0", async () => {
    const failing = (request: ChatCompletionRequest) => (request.model === "small" ? completionOf("polite") : perModel(request));
    const { reward, metadata } = await runGrader(MULTI, INPUT, modelOf(failing));
    expect(reward).toBe(0.5);
    expect(metadata.errors).toMatchObject({ model_grader_parse_error: true, details: [expect.stringMatching(/^Grader `tone`: /u)] });
  });
});

describe("a model grader on a model of the service", () => {
  it("is answered in the requested form", async () => {
    await using test = await startTestService({
      answer: ({ prompt }) => (prompt.includes("It is Paris.") ? answer(0.75) : answer(0)),
    });
    await using service = await connect({ baseUrl: test.url, apiKey: test.apiKey });
    const model = await service.models.create({ project: "test", name: "grader", baseModel: "whetstone-tiny" });
    const { id } = await model.policy();
    const complete: GraderComplete = (request, options) => service.chat.completions.create({ ...request, stream: false }, options);
    const { reward, metadata, model_grader_token_usage_per_model: usage } = await runGrader({ ...SCORE, model: id }, INPUT, { complete });
    expect(metadata.errors.details).toEqual([]);
    expect(reward).toBe(0.75);
    expect(metadata.sampled_model_name).toBe(id);
    expect(usage[id]?.completion_tokens).toBeGreaterThan(10);
    const other = await runGrader({ ...SCORE, model: id }, { ...INPUT, sample: { output_text: "Rome" } }, { complete });
    expect(other.reward).toBe(0);
    const missing = await runGrader({ ...SCORE, model: "local/test/none:step0" }, INPUT, { complete });
    expect(missing.metadata.errors).toMatchObject({ model_grader_server_error: true });
  });
});
