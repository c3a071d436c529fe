/** Clients without a `fetch` option, captured through undici's diagnostics channels. */
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { request } from "undici";
import { describe, expect, it, onTestFinished } from "vitest";
import { capture, captureAll } from "../../src/library/capture/index.ts";
import { preflight } from "../../src/base/trajectory/index.ts";
import { conversation, startHarness, turnsOf, type Harness } from "./support.ts";

const user = (content: string) => ({ role: "user" as const, content });

/** Sends one request without `capture.fetch` and returns the text of the response. */
type Send = (url: string, init: { readonly headers: Record<string, string>; readonly body: string }) => Promise<string>;
const clients: [string, Send][] = [
  ["Node's own fetch", async (url, init) => (await globalThis.fetch(url, { method: "POST", ...init })).text()],
  ["undici's request", async (url, init) => (await request(url, { method: "POST", ...init })).body.text()],
];

function ask({ address, policy }: Harness, send: Send, body: object = {}): Promise<string> {
  return send(`${address.baseURL}/chat/completions`, {
    headers: { authorization: `Bearer ${address.apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({ model: policy.id, messages: [user("hi")], ...body }),
  });
}

const TRAINABLE = { logprobs: true, return_token_ids: true };

describe.each(clients)("%s", (_, send) => {
  it.each([{}, { stream: true }])("records a request unchanged, %o", async (more) => {
    using watching = captureAll();
    void watching;
    const harness = await startHarness(conversation);
    const recorded = await capture.trajectory(async () => ({ reward: (await ask(harness, send, { ...more, ...TRAINABLE })).length }));
    expect(turnsOf(recorded)).toEqual(harness.sampled);
    expect(recorded.logs).toEqual([]);
    expect(JSON.stringify(recorded)).not.toContain(harness.address.apiKey);
  });

  it("records a request without log-probabilities as it is; preflight rejects the trajectory", async () => {
    using watching = captureAll();
    void watching;
    const harness = await startHarness(conversation);
    const talk = async (reward: number) =>
      capture.trajectory(async () => {
        const { choices } = JSON.parse(await ask(harness, send));
        await ask(harness, send, { messages: [user("hi"), choices[0].message, user("on")] });
        return { reward };
      });
    const [one, two] = [await talk(0), await talk(1)];
    // Joined by their messages, because there are no token ids.
    expect(one.choices).toHaveLength(2);
    expect(one.toJSON().additional_histories).toEqual([]);
    const findings = preflight([{ trajectories: [one.toJSON(), two.toJSON()], exceptions: [], metadata: {}, metrics: {}, logs: [] }]);
    expect(findings[0]).toMatchObject({ code: "choice-without-token-ids", severity: "fatal" });
  });

  it("records no call that lacks a variable of `chatTemplateKwargs`, which cannot be added", async () => {
    using watching = captureAll();
    void watching;
    const harness = await startHarness(conversation);
    const chatTemplateKwargs = { preserve_thinking: true };
    const record = (body: object) =>
      capture.trajectory(async () => ({ reward: (await ask(harness, send, { ...TRAINABLE, ...body })).length }), { chatTemplateKwargs });
    await expect(record({})).rejects.toThrow(/`chatTemplateKwargs` sets `preserve_thinking`, which cannot be added/);
    expect((await record({ chat_template_kwargs: { preserve_thinking: false } })).choices).toHaveLength(1);
  });

  it.each<[string, (text: string) => Uint8Array]>([
    ["gzip", (text) => gzipSync(text)],
    ["deflate", (text) => deflateSync(text)],
    ["br", (text) => brotliCompressSync(text)],
    ["gzip, br", (text) => brotliCompressSync(gzipSync(text))],
  ])("reads a response encoded with %s", async (encoding, encode) => {
    using watching = captureAll();
    void watching;
    const url = await serveOnce(encoding, encode(JSON.stringify(ANSWER)));
    const recorded = await capture.trajectory(async () => {
      await send(`${url}/v1/chat/completions`, { headers: { "content-type": "application/json" }, body: BODY });
      return { reward: 0 };
    });
    expect(recorded.lastText).toBe("hello");
  });

  it("records no turn if the response has an unknown content encoding", async () => {
    using watching = captureAll();
    void watching;
    const url = await serveOnce("x-own", Buffer.from("?"));
    const outcome = capture.trajectory(async () => {
      await send(`${url}/v1/chat/completions`, { headers: { "content-type": "application/json" }, body: BODY });
      return { reward: 0 };
    });
    await expect(outcome).rejects.toThrow("UnsupportedError (E_UNSUPPORTED)");
  });
});

const BODY = JSON.stringify({ model: "a/b/c", messages: [user("hi")] });
const ANSWER = { id: "c", model: "a/b/c:step1", choices: [{ message: { role: "assistant", content: "hello" } }], usage: {} };

/** Starts a server that sends the same response to every request. */
async function serveOnce(encoding: string, body: Uint8Array, status = 200): Promise<string> {
  const server = createServer((incoming, outgoing) => {
    incoming.resume().on("end", () => {
      outgoing.writeHead(status, { "content-type": "application/json", "content-encoding": encoding }).end(body);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const [[, viaFetch]] = clients as [[string, Send]];

describe("captureAll", () => {
  it("records a call through capture.fetch once, and sends one request, even if called twice", async () => {
    using first = captureAll();
    using second = captureAll();
    void first;
    void second;
    const harness = await startHarness(conversation);
    const send: Send = async (url, init) => (await capture.fetch(url, { method: "POST", ...init })).text();
    const recorded = await capture.trajectory(async () => {
      await ask(harness, send);
      await ask(harness, viaFetch, { messages: [user("other")], ...TRAINABLE });
      return { reward: 0 };
    });
    expect(turnsOf(recorded)).toEqual(harness.sampled);
    expect(harness.sampled).toHaveLength(2);
  });

  it("keeps parallel rollouts apart", async () => {
    using watching = captureAll();
    void watching;
    const harness = await startHarness((prompt) => prompt.match(/rollout \d+/)?.[0] ?? "none");
    const rollouts = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        capture.trajectory(async () => {
          await ask(harness, viaFetch, { messages: [user(`rollout ${index}`)], stream: index % 2 === 0 });
          return { reward: index };
        }),
      ),
    );
    expect(rollouts.map((recorded) => recorded.messages().map((message) => message.content))).toEqual(
      Array.from({ length: 20 }, (_, index) => [`rollout ${index}`, `rollout ${index}`]),
    );
  });

  it("excludes other models, other addresses, failed attempts and everything after stop", async () => {
    const watching = captureAll();
    const harness = await startHarness(conversation);
    const url = await serveOnce("identity", Buffer.from("{}"), 503);
    const play = async () => {
      await ask(harness, viaFetch, { model: "tiny" });
      await viaFetch(`${harness.address.baseURL}/models`, { headers: {}, body: BODY });
      await viaFetch(`${url}/v1/chat/completions`, { headers: {}, body: BODY });
      return { reward: 0 };
    };
    await expect(capture.trajectory(play)).rejects.toThrow(/seen were calls to tiny.*the service answered 503/);
    watching.stop();
    watching.stop();
    const after = capture.trajectory(async () => ({ reward: (await ask(harness, viaFetch)).length }));
    await expect(after).rejects.toThrow("no other sampling request was seen");
  });
});
