/** `GET /metrics` after requests and jobs. */
import { describe, expect, it } from "vitest";
import { choice, group, startTestService, type TestService } from "../support.ts";
import { samplesOf, valueOf } from "./prometheus-text.ts";

const CHAT = { messages: [{ role: "user", content: "hi" }], max_tokens: 3 };

/** Returns the metrics of a service. */
async function scrape({ call }: TestService): Promise<string> {
  const { status, headers, body } = await call("GET", "/metrics");
  expect(status).toBe(200);
  expect(headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  return body as string;
}

/** Waits for a job to end. */
async function ended({ ok }: TestService, id: string): Promise<void> {
  await expect.poll(async () => (await ok("GET", `/v1/preview/training-jobs/${id}`)).status).toBe("succeeded");
}

describe("GET /metrics", () => {
  it("needs the key, and is an explained 404 without the option", async () => {
    const { call } = await startTestService();
    expect((await call("GET", "/metrics", undefined, { key: null })).status).toBe(401);
    const { status, body } = await call("GET", "/metrics");
    expect(status).toBe(404);
    expect(body.error.message).toContain("--metrics");
  });

  it("counts requests by the pattern of their route, never by their path", async () => {
    const server = await startTestService({ metrics: true });
    for (const id of ["a", "b", "c"]) await server.call("GET", `/v1/preview/training-jobs/${id}`);
    for (const path of ["/x1", "/x2"]) await server.call("GET", path);
    await server.call("GET", "/v1/models", undefined, { key: null });
    const text = await scrape(server);
    const labels = { method: "GET", entity: "local" };
    expect(valueOf(text, "whetstone_http_requests_total", { ...labels, route: "/v1/preview/training-jobs/:job_id", status: "404" })).toBe(
      3,
    );
    expect(valueOf(text, "whetstone_http_requests_total", { ...labels, route: "unmatched", status: "404" })).toBe(2);
    expect(valueOf(text, "whetstone_http_requests_total", { ...labels, route: "/v1/models", status: "401" })).toBe(1);
    expect(valueOf(text, "whetstone_http_request_duration_seconds_count", { method: "GET", route: "unmatched" })).toBe(2);
    for (const path of ["/x1", "training-jobs/a"]) expect(text).not.toContain(path);
  });

  it("counts tokens, choices, queue and times of chat completions, whole and streamed", async () => {
    const server = await startTestService({ metrics: true });
    await server.ok("POST", "/v1/chat/completions", { ...CHAT, n: 2 });
    await server.call("POST", "/v1/chat/completions", { ...CHAT, stream: true });
    const { usage } = await server.ok("POST", "/v1/chat/completions", CHAT);
    await server.call("POST", "/v1/chat/completions", { ...CHAT, model: "missing" });
    const text = await scrape(server);
    const owner = { base_model: "tiny", entity: "local" };
    expect(valueOf(text, "whetstone_chat_requests_total", { ...owner, outcome: "ok" })).toBe(3);
    expect(valueOf(text, "whetstone_chat_requests_total", { base_model: "unknown", entity: "local", outcome: "E_NOT_FOUND" })).toBe(1);
    expect(valueOf(text, "whetstone_generation_tokens_total", owner)).toBe(4 * usage.completion_tokens);
    expect(valueOf(text, "whetstone_prompt_tokens_total", owner)).toBe(3 * usage.prompt_tokens);
    const choices = samplesOf(text, "whetstone_chat_choices_total");
    expect(choices.reduce((sum, { value }) => sum + value, 0)).toBe(4);
    expect(valueOf(text, "whetstone_time_to_first_token_seconds_count", { base_model: "tiny" })).toBe(3);
    // A choice of k tokens has k - 1 gaps.
    expect(valueOf(text, "whetstone_inter_token_latency_seconds_count", { base_model: "tiny" })).toBe(4 * (usage.completion_tokens - 1));
    expect(valueOf(text, "whetstone_chat_requests_waiting")).toBe(0);
    expect(valueOf(text, "whetstone_chat_requests_running")).toBe(0);
    expect(valueOf(text, "whetstone_chat_duration_seconds_count", { base_model: "tiny" })).toBe(3);
  });

  it("shows waiting and running chat completions while they run", async () => {
    let release: () => void = () => undefined;
    const isReleased = new Promise<void>((resolve) => (release = resolve));
    const server = await startTestService({ metrics: true });
    const { engine } = server;
    const sample = engine.sample.bind(engine);
    let calls = 0;
    engine.sample = async function* (...args) {
      const call = calls++;
      if (call === 0) await isReleased;
      for await (const token of sample(...args)) {
        yield token;
        if (call === 1) await isReleased;
      }
    };
    const gauges = async () => {
      const text = await scrape(server);
      return [valueOf(text, "whetstone_chat_requests_waiting"), valueOf(text, "whetstone_chat_requests_running")];
    };
    const waiting = server.ok("POST", "/v1/chat/completions", CHAT);
    await expect.poll(() => calls).toBe(1);
    expect(await gauges()).toEqual([1, 0]);
    const running = server.ok("POST", "/v1/chat/completions", CHAT);
    await expect.poll(gauges).toEqual([1, 1]);
    release();
    await Promise.all([waiting, running]);
    expect(await gauges()).toEqual([0, 0]);
  });

  it("counts a request that its client cancels as cancelled", async () => {
    const server = await startTestService({ metrics: true });
    const { engine } = server;
    engine.sample = async function* (_policy, _prompt, _params, { signal } = {}) {
      yield { id: 5, logprob: 0, top: [] };
      await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true }));
    };
    const client = new AbortController();
    const request = server.call("POST", "/v1/chat/completions", CHAT, { signal: client.signal }).catch(() => undefined);
    await expect.poll(async () => valueOf(await scrape(server), "whetstone_chat_requests_running")).toBe(1);
    client.abort();
    await request;
    const labels = { base_model: "tiny", entity: "local", outcome: "cancelled" };
    await expect.poll(async () => valueOf(await scrape(server), "whetstone_chat_requests_total", labels)).toBe(1);
  });

  it("counts runs, steps and tokens of training jobs, by owner of the model", async () => {
    const server = await startTestService({ metrics: true });
    const { ok } = server;
    const model = await ok("POST", "/v1/preview/models", { entity: "team-a", project: "p", name: "m", base_model: "tiny" });
    const { id } = await ok("POST", "/v1/preview/training-jobs", {
      model_id: model.id,
      trajectory_groups: [group({ reward: 1, choices: [choice([5], [6])] }, { reward: 0, choices: [choice([5], [7])] })],
    });
    await ended(server, id);
    const owner = { type: "rl", entity: "team-a" };
    await expect.poll(async () => valueOf(await scrape(server), "whetstone_job_runs_total", { ...owner, outcome: "succeeded" })).toBe(1);
    const text = await scrape(server);
    expect(valueOf(text, "whetstone_job_steps_total", owner)).toBe(1);
    expect(valueOf(text, "whetstone_job_trained_tokens_total", owner)).toBeGreaterThan(0);
    expect(valueOf(text, "whetstone_jobs", { status: "succeeded" })).toBe(1);
    expect(valueOf(text, "whetstone_jobs", { status: "queued" })).toBe(0);
    expect(valueOf(text, "whetstone_models", { entity: "team-a" })).toBe(1);
    expect(valueOf(text, "whetstone_checkpoints", { entity: "team-a" })).toBe(2);
  });

  it("has disk, memory and version, and names by the conventions of Prometheus", async () => {
    const server = await startTestService({ metrics: true, limits: { minFreeBytes: 12_345 } });
    await server.ok("POST", "/v1/chat/completions", CHAT);
    const text = await scrape(server);
    expect(valueOf(text, "whetstone_disk_required_free_bytes")).toBe(12_345);
    expect(valueOf(text, "whetstone_disk_free_bytes")).toBeGreaterThan(0);
    expect(valueOf(text, "process_resident_memory_bytes")).toBeGreaterThan(1e6);
    expect(samplesOf(text, "whetstone_build_info")[0]?.labels["version"]).toMatch(/^\d+\.\d+\.\d+/u);
    const types = [...text.matchAll(/^# TYPE (whetstone_\S+) (\S+)$/gmu)].map(([, name = "", type = ""]) => ({ name, type }));
    expect(types.length).toBeGreaterThan(20);
    for (const { name, type } of types) {
      expect(name.endsWith("_total"), name).toBe(type === "counter");
      if (type === "histogram") expect(name).toMatch(/_seconds$/u);
      expect(text).toMatch(new RegExp(`^# HELP ${name} [A-Z0-9][^\\n]+\\.$`, "mu"));
    }
  });
});
