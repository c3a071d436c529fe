/** Rollouts of agents outside of this process, through sessions of a service. */
import { expect, it, onTestFinished } from "vitest";
import { capture } from "../../src/library/capture/index.ts";
import type { Service, SessionInfo } from "../../src/library/client/index.ts";
import { connect } from "../../src/index.ts";
import { startTestService } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../service/support.ts";
import { manualTimeout } from "../support/manual-timeout.ts";

async function connected(): Promise<Service> {
  const running = await startTestService({ dataDir: await temporaryDirectory(), answer: () => "hi" });
  onTestFinished(() => running.close({ graceMs: 0 }));
  const service = await connect({ baseUrl: running.url, apiKey: running.apiKey });
  onTestFinished(() => service.close());
  return service;
}

const model = "whetstone-tiny";

/** The agent: sends one request, and returns its status. */
async function ask({ urls, key }: SessionInfo, content: string): Promise<number> {
  const response = await fetch(`${urls.openai}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "any", messages: [{ role: "user", content }] }),
  });
  await response.text();
  return response.status;
}

it("ends with the score that `run` returns, and deletes the session", async () => {
  const service = await connected();
  const finished = await capture.session(service, {
    model,
    metadata: { scenario_id: "a" },
    run: async (session) => {
      expect(await ask(session, "a")).toBe(200);
      return { reward: 0.5, metrics: { calls: 1 } };
    },
  });
  expect(finished).toMatchObject({ reward: 0.5, metrics: { calls: 1 }, metadata: { scenario_id: "a" } });
  expect(finished.choices[0]?.logprobs?.content).toHaveLength(finished.choices[0]!.token_ids!.length);
  expect(finished.messages().map(({ content }) => content)).toEqual(["a", "hi"]);
  expect(await service.sessions.list()).toEqual([]);
});

it("waits for an agent that finishes the session itself", async () => {
  const service = await connected();
  const finished = await capture.session(service, {
    model,
    run: (session) => {
      void (async () => {
        await ask(session, "a");
        const headers = { authorization: `Bearer ${session.key}`, "content-type": "application/json" };
        await fetch(`${session.urls.session}/finish`, { method: "POST", headers, body: JSON.stringify({ reward: 1 }) });
      })();
    },
  });
  expect(finished.reward).toBe(1);
  expect(finished.choices).toHaveLength(1);
});

it("rejects a session that ends without a reward, and deletes it after any failure", async () => {
  const service = await connected();
  const timedOut = capture.session(service, { model, maxSeconds: 0.05, run: () => {} });
  await expect(timedOut).rejects.toMatchObject({ code: "E_ARGUMENT", message: expect.stringContaining("time was over") });
  const failed = capture.session(service, { model, run: () => Promise.reject(new Error("no agent")) });
  await expect(failed).rejects.toThrow("no agent");
  const abort = new AbortController();
  const aborted = capture.session(service, { model, signal: abort.signal, run: () => abort.abort(new Error("enough")) });
  await expect(aborted).rejects.toThrow("enough");
  const endTime = manualTimeout(50);
  await expect(capture.session(service, { model, timeoutMs: 50, run: endTime })).rejects.toMatchObject({ name: "TimeoutError" });
  expect(await service.sessions.list()).toEqual([]);
});

it("the client creates, scores, lists, waits for and finishes sessions", async () => {
  const service = await connected();
  const { sessions } = service;
  const session = await sessions.create({ model, samplingOverrides: { maxCompletionTokens: 1, temperature: 0.5 }, maxRequests: 2 });
  expect(session).toMatchObject({ status: "open", reward: null, requests: 0 });
  await ask(session, "a");
  const waiting = sessions.wait(session.id);
  expect(await sessions.score(session.id, { reward: 0.25, metrics: { a: 1 } })).toMatchObject({ reward: 0.25, metrics: { a: 1 } });
  expect(await sessions.get(session.id)).toMatchObject({ requests: 1, tokens: 1, status: "open" });
  expect(await sessions.finish(session.id, { metrics: { b: true } })).toMatchObject({ status: "finished", metrics: { a: 1, b: true } });
  expect(await waiting).toMatchObject({ status: "finished", reward: 0.25 });
  expect(await ask(session, "b")).toBe(403);
  const trajectory = await sessions.trajectory(session.id);
  expect(trajectory).toMatchObject({ reward: 0.25, metrics: { a: 1, b: true } });
  expect(trajectory.messages_and_choices[1]).toMatchObject({ temperature: 0.5 });
  expect((await sessions.list({ model })).map(({ id }) => id)).toEqual([session.id]);
  expect(await sessions.list({ model: "other" })).toEqual([]);
  await sessions.delete(session.id);
  await expect(sessions.get(session.id)).rejects.toMatchObject({ code: "E_HTTP", status: 404 });
});
