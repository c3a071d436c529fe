/** Validation of requests before sampling, and the limit of running choices. */
import { describe, expect, it } from "vitest";
import { CONTEXT, HELLO, until, useChatServer, type ChatServer, type ChatServerOptions } from "./support.ts";

const { server, start, refusal } = await useChatServer();
const sampled = (target: ChatServer): number => target.engine.calls.filter((call) => call.verb === "sample").length;

/** Returns options for an engine that waits before its first token until `open` is called. */
function gate(): { readonly options: ChatServerOptions; readonly open: () => void; readonly waiting: () => number } {
  let waiting = 0;
  let open!: () => void;
  const opened = new Promise<void>((resolve) => (open = resolve));
  const before: ChatServerOptions["before"] = async ({ verb }, { signal }) => {
    if (verb !== "sample") return;
    waiting++;
    await Promise.race([
      opened,
      new Promise<never>((_, reject) => signal!.addEventListener("abort", () => reject(signal!.reason as Error), { once: true })),
    ]).finally(() => waiting--);
  };
  return { options: { before, limits: { maxRunningChoices: 4 } }, open, waiting: () => waiting };
}

describe("validation before sampling", () => {
  it.each([
    [{ messages: [{ role: "user", content: "word ".repeat(200) }] }, "input_tokens"],
    [{ max_tokens: CONTEXT + 1 }, "max_tokens"],
    [{ max_tokens: CONTEXT - 1 }, "input_tokens"],
    [{ max_completion_tokens: CONTEXT + 1 }, "max_completion_tokens"],
    [{ truncate_prompt_tokens: CONTEXT + 1 }, "truncate_prompt_tokens"],
    [{ max_tokens: 0 }, "max_tokens"],
    [{ min_tokens: 5, max_tokens: 4 }, null],
    [{ temperature: -1 }, "temperature"],
    [{ logit_bias: { 99999999: 1 } }, "logit_bias"],
    [{ logprobs: true, top_logprobs: 21 }, "logprobs"],
    [{ model: "no/such/model" }, "model"],
  ])("rejects %j with the field and the status, streamed or not, without calling the engine", async (body, param) => {
    const before = sampled(server);
    for (const stream of [false, true]) {
      const answer = await refusal({ ...body, stream });
      expect([answer.status, answer.param]).toEqual([param === "model" ? 404 : 400, param]);
    }
    expect(sampled(server)).toBe(before);
    expect(server.openLeases()).toBe(0);
  });
});

describe("the limit of running choices", () => {
  it("counts choices, not requests; rejects a stream before it starts; running requests complete", async () => {
    const held = gate();
    const target = await start(held.options);
    const running = [target.post({ ...HELLO, n: 3 }), target.post({ ...HELLO, stream: true })];
    await until(() => held.waiting() === 4, "four choices wait for the engine");
    // Without room, a request is rejected before its body is parsed, and so before its errors are found.
    for (const body of [{ ...HELLO }, { ...HELLO, stream: true }, { ...HELLO, n: 3 }, { ...HELLO, temperature: "hot" }]) {
      const response = await target.post(body);
      expect([response.status, response.headers.get("retry-after")]).toEqual([429, "1"]);
      expect(((await response.json()) as any).error).toMatchObject({ type: "TooManyRequestsError", code: 429, param: null });
    }
    expect((await target.post("{")).status).toBe(429);
    expect(sampled(target)).toBe(4);
    held.open();
    for (const response of await Promise.all(running)) {
      expect(response.status).toBe(200);
      await response.text();
    }
    expect((await target.post({ ...HELLO, n: 4 })).status).toBe(200);
  });
  it("accepts a request larger than the limit if nothing else runs, and rejects others meanwhile", async () => {
    const held = gate();
    const target = await start(held.options);
    const large = target.post({ ...HELLO, n: 9 });
    await until(() => held.waiting() === 9, "nine choices wait for the engine");
    expect((await target.post(HELLO)).status).toBe(429);
    held.open();
    expect(((await (await large).json()) as any).choices).toHaveLength(9);
  });
  it("releases the capacity of a request after a rejection, a failure, or a disconnected client", async () => {
    const held = gate();
    const target = await start(held.options);
    for (let turn = 0; turn < 8; turn++) expect((await target.post({ ...HELLO, n: 4, temperature: -1 })).status).toBe(400);
    for (const stream of [true, false]) {
      const client = new AbortController();
      const left = target.post({ ...HELLO, n: 4, stream }, { signal: client.signal }).catch(() => null);
      await until(() => held.waiting() === 4, "four choices wait for the engine");
      client.abort();
      await left;
      await until(() => held.waiting() === 0 && target.openLeases() === 0, "their places are given back");
    }
    held.open();
    expect((await target.post({ ...HELLO, n: 4 })).status).toBe(200);
    const broken = await start({
      limits: { maxRunningChoices: 2 },
      before: ({ verb }) => {
        if (verb === "sampleToken") throw new Error("broken");
      },
    });
    for (let turn = 0; turn < 4; turn++) expect((await broken.post({ ...HELLO, n: 2 })).status).toBe(500);
  });
});
