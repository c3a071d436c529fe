/** Delays of a service while it works on a request: its event loop, `/health`, and one open stream. */
import type { ChildProcess } from "node:child_process";
import { Agent, request } from "undici";
import type { Address, LoopDelay } from "../bench/latency.bench.ts";
import { nextMessage } from "../bench/latency-service.ts";
import { LiveStreams } from "../bench/latency-streams.ts";
import type { Existing, LargestRequest } from "./largest-requests.ts";

/** An answer is kept up to the chunk that reaches this length, in UTF-16 units. */
const MAX_TEXT_LENGTH = 1000;

/** Worst delays during one request, in milliseconds. */
export interface Responsiveness {
  readonly status: number;
  /** From the first byte sent to the last one received. */
  readonly tookMs: number;
  /** Longest delay of the serving thread's event loop. */
  readonly loopMs: number;
  /** 0 without probes. */
  readonly healthMs: number;
  /** Between two tokens of a stream; 0 without streams. */
  readonly gapMs: number;
  /** Beginning of an answer other than 200. */
  readonly message: string;
}

/** Sends requests to a service and watches it meanwhile. */
export class Watch {
  readonly #address: Address;
  readonly #host: ChildProcess;
  readonly #streams: LiveStreams;
  readonly #probesHealth: boolean;
  readonly #agent = new Agent({ connections: null, headersTimeout: 0, bodyTimeout: 0 });
  readonly #healthAgent = new Agent();

  /**
   * @param streams - Streams that are open meanwhile; each keeps a sampler busy.
   * @param probesHealth - Whether to request `/health` all the time.
   */
  constructor(address: Address, host: ChildProcess, { streams = 1, probesHealth = true } = {}) {
    this.#address = address;
    this.#host = host;
    this.#probesHealth = probesHealth;
    this.#streams = new LiveStreams(address, streams);
  }

  /**
   * Sends requests at one time and measures until the last is answered.
   *
   * @param settleMs - Min duration of the measurement.
   * @param isContinuous - Whether delays since the last measurement count, too: of work that continues after an answer.
   */
  async during(sent: readonly LargestRequest[], { settleMs = 60, isContinuous = false } = {}): Promise<Responsiveness> {
    if (!isContinuous) await this.#take();
    const done = new AbortController();
    const health = this.#probesHealth ? this.#probeHealth(done.signal) : 0;
    const startedMs = performance.now();
    const answers = Promise.all(sent.map((each) => this.send(each.method, each.path, each.body, each.key)));
    const gaps = this.#streams.run(settleMs, answers);
    const [first] = await answers;
    const tookMs = performance.now() - startedMs;
    const gapMs = Math.max(0, ...(await gaps));
    done.abort();
    const healthMs = await health;
    const { max: loopMs } = await this.#take();
    const { status, text } = first!;
    await this.#cancelJob(text);
    return { status, tookMs, loopMs, healthMs, gapMs, message: status === 200 ? "" : text.slice(0, 200) };
  }

  /** A job that was accepted need not be trained. */
  async #cancelJob(answer: string): Promise<void> {
    const [, id] = /^\{"id":"([\w-]{36})"\}$/.exec(answer) ?? [];
    if (id !== undefined) await this.send("POST", `/v1/preview/training-jobs/${id}/cancel`);
  }

  /** Sends one request and returns the beginning of its answer. A whole answer can be 200 MB, which would hold up this process. */
  async send(
    method: "POST" | "PUT" | "DELETE" | "GET",
    path: string,
    body?: Uint8Array | string,
    key = this.#address.apiKey,
  ): Promise<{ readonly status: number; readonly text: string }> {
    const { statusCode, body: answer } = await request(this.#address.url + path, {
      method,
      dispatcher: this.#agent,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body }),
    });
    let text = "";
    for await (const bytes of answer) if (text.length < MAX_TEXT_LENGTH) text += String(bytes);
    return { status: statusCode, text };
  }

  /** Creates a model and an artifact version with these lines. */
  async prepare(lines: string): Promise<Existing> {
    const post = async (path: string, body?: object) => JSON.parse((await this.send("POST", path, JSON.stringify(body ?? {}))).text) as any;
    const { id: modelId } = await post("/v1/preview/models", { project: "largest", name: "model", base_model: "whetstone-tiny" });
    const { id } = await post("/v1/preview/artifacts", { project: "largest", name: "data" });
    await this.send("PUT", `/v1/preview/artifacts/${id}/files/train.jsonl`, lines);
    const { url: dataUrl } = await post(`/v1/preview/artifacts/${id}/commit`);
    const { id: sessionId } = await post("/v1/preview/sessions", { model: "whetstone-tiny" });
    const { key: sessionKey } = await post("/v1/preview/sessions", { model: "whetstone-tiny" });
    const environment = { environment: "largest", environment_hash: "1".repeat(64) };
    const { id: planId } = await post("/v1/preview/rollout-plans", { ...environment, policy: "whetstone-tiny", group_size: 1, seed: 0 });
    await post(`/v1/preview/rollout-plans/${planId}/groups`, { groups: [{ group: 0, scenario: 0 }] });
    const leased = await post("/v1/preview/rollout-tasks/lease", {
      worker: "test",
      environments: [{ name: "largest", hash: "1".repeat(64) }],
    });
    const [{ id: taskId, lease_token: leaseToken }] = leased.data;
    return { modelId, dataUrl, sessionId, sessionKey, planId, taskId, leaseToken };
  }

  async close(): Promise<void> {
    await this.#streams.stop();
    await Promise.all([this.#agent.close(), this.#healthAgent.close()]);
  }

  async #take(): Promise<LoopDelay> {
    this.#host.send("take");
    return nextMessage<LoopDelay>(this.#host);
  }

  async #probeHealth(signal: AbortSignal): Promise<number> {
    let worst = 0;
    while (!signal.aborted) {
      const startedMs = performance.now();
      const { body } = await request(`${this.#address.url}/health`, { dispatcher: this.#healthAgent });
      await body.dump();
      worst = Math.max(worst, performance.now() - startedMs);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return worst;
  }
}
