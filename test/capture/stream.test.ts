/** Streams: backpressure, early ends, and joining deltas. */
import { setImmediate as nextTurn } from "node:timers/promises";
import OpenAI from "openai";
import { fetch as undiciFetch } from "undici";
import { describe, expect, it } from "vitest";
import { capture, type Fetch } from "../../src/library/capture/index.ts";
import { CompletionAssembler } from "../../src/base/trajectory/assemble.ts";
import { watchResponse } from "../../src/library/capture/response.ts";
import type { RecordedAnswer } from "../../src/dialects/index.ts";
import { chatCompletionChunk } from "../../src/base/schema/index.ts";
import { fc, test } from "@fast-check/vitest";
import { conversation, startHarness, turnsOf, type Harness } from "./support.ts";

const MODEL = "a/b/c:step2";
const chunk = (choices: readonly object[], more: object = {}) => ({
  id: "c",
  object: "chat.completion.chunk",
  created: 1,
  model: MODEL,
  choices,
  ...more,
});
const part = (delta: object, more: object = {}) => ({ index: 0, delta, ...more });
const entry = (logprob: number) => ({ token: "t", logprob, top_logprobs: [] });
const said = (content: string, id: number, finish: string | null = null) =>
  chunk([part({ content }, { logprobs: { content: [entry(-id)] }, token_ids: [id], finish_reason: finish })]);
const event = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;
const OPENING = chunk([part({ role: "assistant", content: "" })], { prompt_token_ids: [1, 2] });
const BODY = JSON.stringify({ model: MODEL, messages: [{ role: "user", content: "hi" }], stream: true });

/** Returns a captured fetch with a response that streams `events`. */
function streaming(events: ReadableStream<Uint8Array>) {
  const fetch = capture.wrap(() => Promise.resolve(new Response(events, { headers: { "content-type": "text/event-stream" } })));
  return () => fetch("http://models.example/v1/chat/completions", { method: "POST", body: BODY });
}

const encode = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text) as Uint8Array<ArrayBuffer>;
const fixed = (...texts: string[]) =>
  new ReadableStream<Uint8Array>({
    start(controller) {
      for (const text of texts) controller.enqueue(encode(text));
      controller.close();
    },
  });

describe("the agent's stream", () => {
  it("receives every byte as it arrives, before the service has finished", async () => {
    let push!: (text: string) => void;
    let end!: () => void;
    const source = new ReadableStream<Uint8Array>({
      start(controller) {
        push = (text) => controller.enqueue(encode(text));
        end = () => controller.close();
      },
    });
    const send = streaming(source);
    const pieces = [event(OPENING), event(said("a", 3)), event(said("b", 4, "stop")), "data: [DONE]\n\n"];
    const recorded = await capture.trajectory(async () => {
      const response = await send();
      expect([response.status, response.headers.get("content-type"), response.ok]).toEqual([200, "text/event-stream", true]);
      const reader = response.body!.getReader();
      for (const piece of pieces) {
        push(piece);
        // No more data has been sent, so the read would hang if capture waited for the rest.
        expect(new TextDecoder().decode((await reader.read()).value)).toBe(piece);
      }
      end();
      expect((await reader.read()).done).toBe(true);
      return { reward: 0 };
    });
    expect(turnsOf(recorded)).toEqual([{ prompt: [1, 2], ids: [3, 4] }]);
    expect(recorded.initialPolicyVersion).toBe(2);
  });

  it("is recorded even if nobody reads it, without blocking", async () => {
    const long = Array.from({ length: 2000 }, (_, index) => event(said("x".repeat(1000), index)));
    const send = streaming(fixed(event(OPENING), ...long, event(said("", 9, "length")), "data: [DONE]\n\n"));
    const recorded = await capture.trajectory(async () => {
      await send();
      return { reward: 0 };
    });
    expect(recorded.choices[0]?.token_ids).toHaveLength(2001);
  });

  it("can be read with a BYOB reader", async () => {
    const send = streaming(fixed(event(OPENING), event(said("a", 3, "stop")), "data: [DONE]\n\n"));
    await capture.trajectory(async () => {
      const reader = (await send()).body!.getReader({ mode: "byob" });
      let text = "";
      for (;;) {
        const { value, done } = await reader.read(new Uint8Array(64));
        if (done) break;
        text += new TextDecoder().decode(value);
      }
      expect(text).toMatch(/\[DONE\]\n\n$/);
      return { reward: 0 };
    });
  });

  it("fails for the agent if the source fails, and is not recorded as a turn", async () => {
    const failure = new Error("socket");
    const source = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(encode(event(OPENING) + event(said("a", 3)))),
      async pull(controller) {
        await nextTurn();
        controller.error(failure);
      },
    });
    const outcome = capture.trajectory(async () => {
      await expect((await streaming(source)()).text()).rejects.toBe(failure);
      return { reward: 0 };
    });
    await expect(outcome).rejects.toMatchObject({ code: "E_ARGUMENT", message: expect.stringContaining("ConnectionError (E_CONNECTION)") });
  });

  it.each([
    ["an error event", [event(OPENING), event({ error: { message: "engine failed" } }), "data: [DONE]\n\n"], "HttpError (E_HTTP)"],
    ["an end before [DONE]", [event(OPENING), event(said("a", 3))], "ConnectionError"],
    ["something that is no chunk", [event({ hello: 1 })], "ProtocolError"],
    ["nothing", ["data: [DONE]\n\n"], "ProtocolError"],
  ])("is not recorded as a turn if it has %s", async (_, events, reason) => {
    const outcome = capture.trajectory(async () => ({ reward: (await (await streaming(fixed(...events))()).text()).length }));
    await expect(outcome).rejects.toThrow(reason);
  });

  it("ends the request if the agent cancels it; drops an incomplete turn and keeps a complete one", async () => {
    let cancelled: unknown = null;
    const endless = (first: string) =>
      new ReadableStream<Uint8Array>({
        start: (controller) => controller.enqueue(encode(first)),
        cancel: (reason) => void (cancelled = reason),
      });
    const leave = async (first: string) => {
      const reader = (await streaming(endless(first))()).body!.getReader();
      await reader.read();
      await reader.cancel("enough");
      return { reward: 0 };
    };
    const half = capture.trajectory(() => leave(event(OPENING) + event(said("a", 3))));
    await expect(half).rejects.toThrow(/is no turn: ConnectionError/);
    expect(cancelled).toBe("enough");
    const whole = await capture.trajectory(() => leave(event(OPENING) + event(said("a", 3, "stop"))));
    expect(turnsOf(whole)).toEqual([{ prompt: [1, 2], ids: [3] }]);
  });

  it("is recorded if the openai client leaves the loop after the finish reason, and dropped if before", async () => {
    let isHeld = false;
    const harness = await startHarness(
      () => "a".repeat(40),
      async ({ verb, detail }, { signal }) => {
        if (!isHeld || verb !== "sampleToken" || detail !== 20) return;
        await new Promise<void>((resolve) => signal?.addEventListener("abort", () => resolve()));
      },
    );
    const client = new OpenAI({ ...harness.address, fetch: capture.fetch, maxRetries: 0 });
    const talk = (isOver: (finishReason: string | null) => boolean) =>
      capture.trajectory(async () => {
        const body = { model: harness.policy.id, messages: [{ role: "user" as const, content: "hi" }], stream: true as const };
        for await (const { choices } of await client.chat.completions.create(body)) {
          if (isOver(choices[0]?.finish_reason ?? null)) break;
        }
        return { reward: 0 };
      });
    const recorded = await talk((reason) => reason !== null);
    expect(turnsOf(recorded)).toEqual(harness.sampled);
    expect(harness.sampled).toHaveLength(1);
    isHeld = true;
    await expect(talk(() => true)).rejects.toThrow(/is no turn/);
  });

  it("frees the engine if the agent leaves a stream of the embedded service early", async () => {
    let tokens = 0;
    const harness: Harness = await startHarness(
      () => "a".repeat(3000),
      async ({ verb }) => {
        if (verb === "sampleToken" && tokens++ > 5) await nextTurn();
      },
    );
    const { baseURL, apiKey } = harness.address;
    const outcome = capture.trajectory(async () => {
      const response = await capture.fetch(`${baseURL}/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
        body: JSON.stringify({ ...JSON.parse(BODY), model: harness.policy.id }),
      });
      for await (const _ of response.body!) break;
      return { reward: 0 };
    });
    await expect(outcome).rejects.toThrow(/is no turn/);
    expect(tokens).toBeLessThan(3000);
  });
});

describe("deltas", () => {
  const assemble = (chunks: readonly object[]) => {
    const assembler = new CompletionAssembler();
    for (const one of chunks) assembler.push(chatCompletionChunk.parse(one));
    return assembler.toCompletion()!;
  };

  it("are joined by kind, and tool calls by index", () => {
    const completion = assemble([
      chunk([part({ role: "assistant", content: "" })], { prompt_token_ids: [1] }),
      chunk([part({ reasoning: "let me " })]),
      chunk([part({ reasoning: "see", content: "It " })]),
      chunk([part({ refusal: "no" })]),
      chunk([part({ tool_calls: [{ index: 1, id: "two", type: "function", function: { name: "g", arguments: "" } }] })]),
      chunk([part({ tool_calls: [{ index: 0, id: "one", type: "function", function: { name: "f", arguments: '{"a"' } }] })]),
      chunk([
        part({
          tool_calls: [
            { index: 0, function: { arguments: ":1}" } },
            { index: 1, function: { arguments: "{}" } },
          ],
        }),
      ]),
      chunk([part({ content: "is" }, { token_ids: [5, 6], logprobs: { content: [entry(-1), entry(-2)] } })]),
      chunk([part({}, { token_ids: [7], logprobs: { content: [entry(-3)] }, finish_reason: "tool_calls", stop_reason: "x" })]),
      chunk([], { usage: { prompt_tokens: 1, completion_tokens: 3, total_tokens: 4 } }),
    ]);
    expect(completion).toMatchObject({ id: "c", model: MODEL, prompt_token_ids: [1], usage: { total_tokens: 4 } });
    expect(completion.choices).toEqual([
      {
        index: 0,
        message: {
          role: "assistant",
          content: "It is",
          reasoning: "let me see",
          refusal: "no",
          tool_calls: [
            { id: "one", type: "function", function: { name: "f", arguments: '{"a":1}' } },
            { id: "two", type: "function", function: { name: "g", arguments: "{}" } },
          ],
        },
        logprobs: { content: [entry(-1), entry(-2), entry(-3)] },
        finish_reason: "tool_calls",
        stop_reason: "x",
        token_ids: [5, 6, 7],
      },
    ]);
  });

  it("of several choices may arrive in any order", () => {
    const { choices } = assemble([
      chunk([{ index: 1, delta: { content: "b" }, token_ids: [2] }]),
      chunk([{ index: 0, delta: { content: "a" }, token_ids: [1], finish_reason: "stop" }]),
      chunk([{ index: 1, delta: { content: "B" }, token_ids: [3], finish_reason: "length" }]),
    ]);
    expect(choices.map(({ index, message, token_ids, finish_reason }) => [index, message.content, token_ids, finish_reason])).toEqual([
      [0, "a", [1], "stop"],
      [1, "bB", [2, 3], "length"],
    ]);
  });

  test.prop(
    [
      fc.array(fc.string({ unit: "grapheme", maxLength: 4 }), { minLength: 1, maxLength: 8 }),
      fc.infiniteStream(fc.integer({ min: 1, max: 40 })),
    ],
    {
      numRuns: 50,
    },
  )("are joined to the same completion for any chunk boundaries", async (texts, sizes) => {
    const bytes = encode(
      [OPENING, ...texts.map((text, id) => said(text, id)), said("", 99, "stop")].map(event).join("") + "data: [DONE]\n\n",
    );
    const cut = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let at = 0; at < bytes.length;) {
          const size = sizes.next().value;
          controller.enqueue(bytes.slice(at, at + size));
          at += size;
        }
        controller.close();
      },
    });
    const streamed = new Response(cut, { headers: { "content-type": "text/event-stream; charset=utf-8" } });
    const { response, answer } = watchResponse(streamed, { dialect: "chat", body: {} });
    expect(new Uint8Array(await response.arrayBuffer())).toEqual(bytes);
    expect(((await answer) as RecordedAnswer<"chat">).choices[0]).toMatchObject({
      message: { content: texts.join("") },
      token_ids: [...texts.keys(), 99],
      finish_reason: "stop",
    });
  });
});

it.each([
  ["text", "<html>", 'Expected an answer in JSON, got "<html>"'],
  ["another object", '{"hello":1}', "Expected an answer of the API `chat`: `id`: Invalid input: expected string"],
  ["an answer without a choice", '{"id":"c","model":"m","choices":[]}', "Expected at least one choice in the answer, got none"],
])("the error for %s names the expected answer and the received value", async (_, body, message) => {
  const { answer } = watchResponse(new Response(body), { dialect: "chat", body: {} });
  await expect(answer).rejects.toMatchObject({ code: "E_PROTOCOL", message: expect.stringContaining(message) as string });
});

it("wraps a fetch of another implementation", async () => {
  const harness = await startHarness(conversation);
  const own = capture.wrap(((input, init) => undiciFetch(String(input), init as Parameters<typeof undiciFetch>[1])) as Fetch);
  const client = new OpenAI({ ...harness.address, fetch: own, maxRetries: 0 });
  const recorded = await capture.trajectory(async () => {
    const body = { model: harness.policy.id, messages: [{ role: "user" as const, content: "hi" }] };
    await client.chat.completions.create(body);
    await client.chat.completions.stream(body).finalChatCompletion();
    return { reward: 0 };
  });
  expect(turnsOf(recorded)).toEqual(harness.sampled);
  expect(harness.sampled).toHaveLength(2);
});

describe("arguments of fetch", () => {
  it.each<[string, (url: string, headers: Record<string, string>, body: string) => Parameters<typeof fetch>]>([
    ["a text and text headers", (url, headers, body) => [url, { method: "POST", headers, body }]],
    ["a URL and bytes", (url, headers, body) => [new URL(url), { method: "post", headers: Object.entries(headers), body: encode(body) }]],
    ["a Request", (url, headers, body) => [new Request(url, { method: "POST", headers, body })]],
    ["a Request and more", (url, headers, body) => [new Request(url, { method: "POST", headers }), { body }]],
    [
      "a length of the old body",
      (url, headers, body) => [url, { method: "POST", headers: { ...headers, "content-length": String(body.length) }, body }],
    ],
    ["a Blob", (url, headers, body) => [url, { method: "POST", headers, body: new Blob([body]) }]],
  ])("%s", async (_, request) => {
    const harness = await startHarness(conversation);
    const { baseURL, apiKey } = harness.address;
    const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
    const body = JSON.stringify({ model: harness.policy.id, messages: [{ role: "user", content: "hi" }] });
    const recorded = await capture.trajectory(async () => {
      const response = await capture.fetch(...request(`${baseURL}/chat/completions`, headers, body));
      expect(response.url).toBe(`${baseURL}/chat/completions`);
      expect(await response.json()).toMatchObject({ choices: [{ finish_reason: "stop" }] });
      return { reward: 0 };
    });
    expect(turnsOf(recorded)).toEqual(harness.sampled);
  });
});
