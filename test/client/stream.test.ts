import { describe, expect, it } from "vitest";
import type { ChatCompletionChunk } from "../../src/index.ts";
import type { Interceptor } from "../support/nine-routes-server.ts";
import { rejection, useServer } from "./connection.ts";

const open = useServer();
const params = { messages: [{ role: "user", content: "hi" }], stream: true as const, return_token_ids: true };
const chunk = (content: string) =>
  `data: ${JSON.stringify({ id: "c", created: 1, model: "m", choices: [{ index: 0, delta: { content } }] })}\n\n`;

async function collect(stream: AsyncIterable<ChatCompletionChunk>): Promise<string> {
  let text = "";
  for await (const { choices } of stream) text += choices[0]?.delta.content ?? "";
  return text;
}

/** Sends these pieces, then ends, closes the connection, or waits. */
function streaming(pieces: readonly (string | Buffer)[], end: "end" | "cut" | "wait"): Interceptor {
  return async (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const piece of pieces) {
      response.write(piece);
      await new Promise(setImmediate);
    }
    if (end === "end") response.end();
    if (end === "cut") response.socket?.resetAndDestroy();
    return true;
  };
}

describe("streamed completions", () => {
  it("yields chunks until [DONE]", async () => {
    const { service } = await open();
    const chunks: ChatCompletionChunk[] = [];
    for await (const each of service.chat.completions.create(params)) chunks.push(each);
    expect(chunks[0]?.prompt_token_ids).toEqual([1, 2, 3]);
    expect(chunks.flatMap(({ choices }) => choices[0]?.token_ids ?? [])).toEqual([97, 98, 99]);
    expect(chunks.at(-1)?.choices[0]?.finish_reason).toBe("stop");
  });

  it("parses events and characters that are split at any byte", async () => {
    const { server, service } = await open();
    const bytes = Buffer.from(`: comment\r\n\r\n${chunk("gr")}${chunk("ün")}data: [DONE]\n\n${chunk("after")}`);
    server.intercept = streaming(
      [...bytes].map((byte) => Buffer.from([byte])),
      "end",
    );
    await expect(collect(service.chat.completions.create(params))).resolves.toBe("grün");
  });

  it("throws an error event", async () => {
    const { server, service } = await open();
    server.intercept = streaming(
      [chunk("a"), `data: {"error":{"message":"engine died","type":"InternalServerError","param":null,"code":500}}\n\ndata: [DONE]\n\n`],
      "end",
    );
    await expect(collect(service.chat.completions.create(params))).rejects.toMatchObject({
      code: "E_HTTP",
      status: null,
      type: "InternalServerError",
      message: expect.stringMatching(/engine died/),
    });
  });

  it.each(["end", "cut"] as const)("throws if the stream ends without [DONE] (%s), and does not retry", async (end) => {
    const { server, service } = await open();
    server.intercept = streaming([chunk("a")], end);
    await expect(collect(service.chat.completions.create(params))).rejects.toMatchObject({ code: "E_CONNECTION" });
    expect(server.requests).toHaveLength(1);
  });

  it("throws if an event is not a chunk", async () => {
    const { server, service } = await open();
    server.intercept = streaming([`data: {"choices": 3}\n\n`], "wait");
    await expect(collect(service.chat.completions.create(params))).rejects.toMatchObject({ code: "E_PROTOCOL" });
  });

  it("throws an error response as for any other request", async () => {
    const { server, service } = await open();
    server.intercept = (_, response) => (response.writeHead(404).end(`{"detail":"no such model"}`), true);
    await expect(collect(service.chat.completions.create(params))).rejects.toMatchObject({ status: 404 });
  });

  it("aborts the request if the caller leaves the loop", async () => {
    const { server, service } = await open();
    server.intercept = streaming([chunk("a"), chunk("b")], "wait");
    const gone = server.nextAbort();
    for await (const _ of service.chat.completions.create(params)) break;
    await gone;
    expect(server.aborted).toHaveLength(1);
  });

  it("rejects with the signal's reason if aborted between two chunks", async () => {
    const { server, service } = await open();
    server.intercept = streaming([chunk("a")], "wait");
    const controller = new AbortController();
    const reason = new Error("enough");
    const gone = server.nextAbort();
    const reading = (async () => {
      for await (const _ of service.chat.completions.create(params, { signal: controller.signal })) controller.abort(reason);
    })();
    await expect(rejection(reading)).resolves.toBe(reason);
    await gone;
  });
});
