/** Single requests of each API dialect: prompts without messages, unchanged answers, rejected, failed and abandoned requests. */
import { describe, expect, it } from "vitest";
import { capture } from "../../src/library/capture/index.ts";
import { assembledMessage, send, type SentEvent, type Target } from "../service/dialects/players.ts";
import { comparable, startHarness, tokenizer, turnsOf, type Harness } from "./support.ts";

const user = (content: string) => ({ role: "user", content });
const ids = (text: string): number[] => [...tokenizer.encode(text)];

/** Returns a model that answers each request with a new word. */
function counting(): () => string {
  let count = 0;
  return () => `word ${count++}`;
}

/** Creates a session, and a target with requests that are both captured and recorded in the session. */
async function recordedTwice({ service, policy, test }: Harness) {
  const { id, key } = await service.sessions.create({ model: policy.id });
  const target: Target = { service: { url: test.service.url, apiKey: key }, fetch: capture.fetch };
  return { target, trajectory: () => service.sessions.trajectory(id) };
}

describe("prompts without messages", () => {
  it.each([
    ["a text", { prompt: "one two" }],
    ["token ids", { prompt: ids("one two") }],
    ["texts with several choices each", { prompt: ["one", "two"], n: 2, temperature: 0.5 }],
    ["lists of token ids", { prompt: [ids("one"), ids("two")], logprobs: 2 }],
  ])("%s of a text completion: captured as sessions record them, plain and streaming", async (_, body) => {
    const harness = await startHarness(counting());
    const { target, trajectory } = await recordedTwice(harness);
    const captured = await capture.trajectory(async () => {
      for (const stream of [false, true]) {
        const { status } = await send(target, "/v1/completions", { model: harness.policy.id, max_tokens: 60, ...body, stream });
        expect(status).toBe(200);
      }
      return { reward: 1 };
    });
    expect(captured.logs).toEqual([]);
    expect(comparable(captured.toJSON())).toEqual(comparable(await trajectory()));
    const byIds = (turns: readonly object[]) => turns.map((turn) => JSON.stringify(turn)).toSorted();
    expect(byIds(turnsOf(captured))).toEqual(byIds(harness.sampled));
    expect(captured.allChoices.map((choice) => choice.policy_version)).toEqual(harness.sampled.map(() => harness.policy.step));
  });

  it("token ids of the token route: captured with the ids and log-probabilities that sessions record", async () => {
    const harness = await startHarness(counting());
    const { target, trajectory } = await recordedTwice(harness);
    const captured = await capture.trajectory(
      async () => {
        for (const sampling_params of [undefined, { max_tokens: 60, n: 2, temperature: 0.5, logprobs: 1 }]) {
          const body = { model: harness.policy.id, token_ids: ids("one two"), sampling_params };
          expect((await send(target, "/inference/v1/generate", body)).status).toBe(200);
        }
        return { reward: 1 };
      },
      { policy: harness.policy },
    );
    // The answer of the route has no text.
    const withoutText = (wire: ReturnType<typeof captured.toJSON>) =>
      JSON.parse(
        JSON.stringify(comparable(wire), (key, value: unknown) => (key === "content" && typeof value === "string" ? undefined : value)),
      );
    expect(withoutText(captured.toJSON())).toEqual(withoutText(await trajectory()));
    expect(turnsOf(captured)).toHaveLength(3);
  });

  it("an echoed prompt is not recorded, and its request is sent unchanged", async () => {
    const bodies: unknown[] = [];
    const fetch = capture.wrap((_, init) => {
      bodies.push(JSON.parse(String(init?.body)));
      return Promise.resolve(Response.json({ id: "c", model: "a/b/c", choices: [{ index: 0, text: "one two" }] }));
    });
    const body = { model: "a/b/c", prompt: "one", echo: true, stream: false };
    const outcome = capture.trajectory(async () => ({
      reward: (await fetch("http://models.example/v1/completions", { method: "POST", body: JSON.stringify(body) })).status,
    }));
    await expect(outcome).rejects.toMatchObject({ code: "E_ARGUMENT", message: expect.stringMatching(/is no turn: `echo`: true/u) });
    expect(bodies).toEqual([body]);
  });
});

/** Path, a request, and the answer of a stream as the same request has it without streaming. */
const REQUESTS: readonly (readonly [string, object, ((events: readonly SentEvent[]) => unknown) | null])[] = [
  ["/v1/responses", { input: "1 + 2?", tools: [{ type: "function", name: "add" }] }, (events) => events.at(-1)!.data.response],
  ["/v1/messages", { messages: [user("1 + 2?")], max_tokens: 200, tools: [{ name: "add" }] }, assembledMessage],
  ["/v1/completions", { prompt: "one", max_tokens: 60 }, textOf],
  ["/inference/v1/generate", { token_ids: ids("one") }, null],
];

function textOf(events: readonly SentEvent[]): unknown {
  const chunks = events.filter(({ data }) => data !== "[DONE]").map(({ data }) => data);
  const { choices } = chunks.at(-1);
  return { ...chunks[0], choices: [{ ...choices[0], text: chunks.map((chunk) => chunk.choices[0].text).join("") }] };
}

/** Returns an answer without identifiers, times and the members that capture requests. */
function visible(answer: unknown): unknown {
  const hidden = new Set(["id", "created", "created_at", "request_id", "call_id", "prompt_token_ids", "token_ids", "logprobs", "tokens"]);
  return JSON.parse(JSON.stringify(answer, (key, value: unknown) => (hidden.has(key) || value === null ? undefined : value)));
}

/** Returns the types of events, without repeated deltas: their number depends on timing. */
const typesOf = (events: readonly SentEvent[]) =>
  events.map(({ data }) => data.type).filter((type, index, all) => type !== "ping" && type !== all[index - 1]);

it.each(REQUESTS)("%s: the agent receives the answer that it would receive without capture", async (path, request, assembled) => {
  const harness = await startHarness(() => 'See. <tool_call>{"name": "add",  "arguments": {"a": 1}}</tool_call>');
  const service = { url: harness.test.service.url, apiKey: harness.address.apiKey };
  for (const stream of assembled === null ? [false] : [false, true]) {
    const body = { model: harness.policy.id, ...request, ...(stream ? { stream } : {}) };
    const plain = await send({ service }, path, body);
    let watched: typeof plain | null = null;
    await capture.trajectory(
      async () => {
        watched = await send({ service, fetch: capture.fetch }, path, body);
        return { reward: 0 };
      },
      { policy: harness.policy },
    );
    const answerOf = ({ body: whole, events }: typeof plain) => visible(stream ? assembled!(events) : whole);
    expect(answerOf(watched!)).toEqual(answerOf(plain));
    expect(typesOf(watched!.events)).toEqual(typesOf(plain.events));
  }
});

it.each(REQUESTS)("%s: a rejected request is not a turn", async (path, request) => {
  const harness = await startHarness(counting());
  const service = { url: harness.test.service.url, apiKey: harness.address.apiKey };
  const wrong = path === "/inference/v1/generate" ? { sampling_params: { temperature: -1 } } : { temperature: -1 };
  const outcome = capture.trajectory(
    async () => ({
      reward: (await send({ service, fetch: capture.fetch }, path, { model: harness.policy.id, ...request, ...wrong })).status,
    }),
    { policy: harness.policy },
  );
  await expect(outcome).rejects.toMatchObject({ code: "E_ARGUMENT", message: expect.stringContaining("the service answered 400") });
});

const MODEL = "a/b/c:step2";
const event = (data: object) => `event: x\ndata: ${JSON.stringify(data)}\n\n`;
const said = { output: [{ type: "message", role: "assistant", content: [{ type: "output_text", text: "a" }] }] };
const sampled = { prompt_token_ids: [1, 2], token_ids: [3], logprobs: [-1], tokens: ["a"] };
const textChunk = (more: object) => event({ id: "c", model: MODEL, choices: [{ index: 0, text: "a", ...more }] });

/** Path, a request, the beginning of a stream, the events with which the turn is complete, and an error event. */
const STREAMS: readonly (readonly [string, object, string, string, string])[] = [
  [
    "/v1/responses",
    { input: "hi" },
    event({ type: "response.created", response: { id: "r", model: MODEL, output: [] } }),
    event({ type: "response.completed", response: { id: "r", model: MODEL, ...said, ...sampled } }),
    event({ type: "error", code: "E_ENGINE", message: "engine failed" }),
  ],
  [
    "/v1/messages",
    { messages: [user("hi")] },
    event({ type: "message_start", message: { id: "m", model: MODEL, content: [] } }) +
      event({ type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }),
    event({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "a" } }) +
      event({ type: "message_delta", delta: { stop_reason: "end_turn" }, ...sampled }),
    event({ type: "error", error: { type: "api_error", message: "engine failed" } }),
  ],
  [
    "/v1/completions",
    { prompt: "hi" },
    event({ id: "c", model: MODEL, choices: [{ index: 0, text: "", prompt_token_ids: [1, 2] }] }),
    textChunk({ finish_reason: "stop", token_ids: [3], logprobs: { tokens: ["a"], token_logprobs: [-1] } }),
    event({ error: { message: "engine failed" } }),
  ],
];

describe.each(STREAMS)("a stream of %s", (path, request, opening, rest, failure) => {
  const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
  const body = JSON.stringify({ model: MODEL, ...request, stream: true });
  const open = (source: ReadableStream<Uint8Array>) =>
    capture.wrap(() => Promise.resolve(new Response(source, { headers: { "content-type": "text/event-stream" } })))(
      `http://models.example${path}`,
      { method: "POST", body },
    );
  const fixed = (...texts: string[]) =>
    new ReadableStream<Uint8Array>({
      start(controller) {
        for (const text of texts) controller.enqueue(encode(text));
        controller.close();
      },
    });
  /** Reads the beginning of an endless stream and cancels it. */
  const leave = (text: string) =>
    capture.trajectory(async () => {
      const reader = (await open(new ReadableStream({ start: (controller) => controller.enqueue(encode(text)) }))).body!.getReader();
      await reader.read();
      await reader.cancel("enough");
      return { reward: 0 };
    });

  it("is recorded once its turn is complete, also if the agent leaves it then", async () => {
    const read = await capture.trajectory(async () => ({ reward: (await (await open(fixed(opening, rest))).text()).length }));
    for (const recorded of [read, await leave(opening + rest)]) {
      expect(turnsOf(recorded)).toEqual([{ prompt: [1, 2], ids: [3] }]);
      const [choice] = recorded.choices;
      expect(choice).toMatchObject({ finish_reason: "stop", policy_version: 2, message: { content: "a" } });
      expect(choice!.logprobs!.content).toMatchObject([{ token: "a", logprob: -1 }]);
    }
  });

  it("is not a turn if the agent leaves it earlier, or if it is cut", async () => {
    await expect(leave(opening)).rejects.toThrow(/is no turn: ConnectionError/u);
    const cut = capture.trajectory(async () => ({ reward: (await (await open(fixed(opening))).text()).length }));
    await expect(cut).rejects.toThrow(/is no turn: ConnectionError/u);
  });

  it.each([
    ["an error event", failure, "HttpError"],
    ["an event of another form", event({ type: "content_block_delta", index: "x", response: {} }), "(?:Protocol|Connection)Error"],
    ["something other than JSON", "data: hello\n\n", "ProtocolError"],
  ])("is not a turn with %s", async (_, text, name) => {
    const outcome = capture.trajectory(async () => ({ reward: (await (await open(fixed(opening, text))).text()).length }));
    await expect(outcome).rejects.toThrow(new RegExp(`is no turn: ${name}`, "u"));
  });
});

describe("previous responses", () => {
  const ask = async ({ test, policy, address }: Harness, body: object): Promise<any> => {
    const target = { service: { url: test.service.url, apiKey: address.apiKey }, fetch: capture.fetch };
    return (await send(target, "/v1/responses", { model: policy.id, ...body })).body;
  };

  it("are part of the conversation, also as references to their items", async () => {
    const harness = await startHarness(counting());
    const recorded = await capture.trajectory(async () => {
      const first = await ask(harness, { input: "one", instructions: "be brief" });
      const second = await ask(harness, { input: "two", previous_response_id: first.id, instructions: "be brief" });
      const [{ id }] = first.output;
      await ask(harness, { input: [user("one"), { type: "item_reference", id }, user("other")], instructions: "be brief" });
      await ask(harness, { input: [user("three")], previous_response_id: second.id, instructions: "be brief" });
      return { reward: 1 };
    });
    expect(recorded.logs).toEqual([]);
    expect(recorded.messages().map(({ content }) => content)).toEqual(["be brief", "one", "word 0", "two", "word 1", "three", "word 3"]);
    const [other] = recorded.additionalHistories;
    expect(other!.messagesAndChoices.map((item) => ("message" in item ? item.message : item))).toMatchObject(
      ["be brief", "one", "word 0", "other", "word 2"].map((content) => ({ content })),
    );
  });

  it("from outside of the rollout are logged, and the request is not a turn", async () => {
    const harness = await startHarness(counting());
    const before = await ask(harness, { input: "one" });
    const recorded = await capture.trajectory(async () => {
      await ask(harness, { input: "two", previous_response_id: before.id });
      await ask(harness, { input: [{ type: "item_reference", id: before.output[0].id }] });
      await ask(harness, { input: "alone" });
      return { reward: 1 };
    });
    expect(recorded.messages().map(({ content }) => content)).toEqual(["alone", "word 3"]);
    expect(recorded.logs).toEqual([
      expect.stringContaining(`\`previous_response_id\`: expected a response that this rollout recorded, got '${before.id}'`),
      expect.stringContaining("`input`: expected a reference to an item of a response that this rollout recorded"),
    ]);
  });
});
