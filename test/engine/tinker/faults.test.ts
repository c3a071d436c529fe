/** The adapter where the server, or the way to it, is not at its best. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { createReferenceEngine } from "../../../src/testing/index.ts";
import { createTinkerEngine } from "../../../src/engine/tinker/engine.ts";
import { capabilitiesAnswer } from "../../../src/engine/tinker/answers.ts";
import { TinkerSession } from "../../../src/engine/tinker/session.ts";
import { TinkerTransport } from "../../../src/engine/tinker/transport.ts";
import type { Engine } from "../../../src/engine/port.ts";
import { startTinkerServer, type TinkerServerOptions } from "../../support/tinker-server.ts";
import { BASE, BASE_DIRECTORY, codeOf, params, plainStep, rowsOf, sampleAll, scratchDirectory, tokensOf } from "../conformance/subject.ts";

const baseModels = { [BASE]: BASE_DIRECTORY };

async function start(fault?: TinkerServerOptions["fault"]): Promise<{ engine: Engine; paths: readonly string[]; url: string }> {
  const behind = createReferenceEngine({ baseModels });
  const { url, paths, close } = await startTinkerServer({ engine: behind, base: BASE, baseName: BASE, reduction: "sum", fault });
  const engine = await createTinkerEngine({ url, baseModels, patienceMs: 20_000 });
  onTestFinished(async () => {
    await engine.close();
    await close();
  });
  return { engine, paths, url };
}

/** A server of one answer per request, in order; the last is repeated. */
async function startScript(...answers: ((request: IncomingMessage, response: ServerResponse) => void)[]): Promise<TinkerTransport> {
  let count = 0;
  const server = createServer((request, response) => {
    request.resume();
    answers[Math.min(count++, answers.length - 1)]!(request, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const transport = new TinkerTransport({ url: `http://127.0.0.1:${port}/prefix/`, apiKey: "tml-key", patienceMs: 20_000 });
  onTestFinished(async () => {
    await transport.close();
    server.closeAllConnections();
    server.close();
  });
  return transport;
}

const answer = (status: number, body: object) => (_: IncomingMessage, response: ServerResponse) => {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
};

describe("a number that is not finite", () => {
  /** Returns an engine, and sets the server's answer to the next futures. */
  async function answering(): Promise<{ engine: Engine; next: { body: Record<string, unknown> | null } }> {
    const next: { body: Record<string, unknown> | null } = { body: null };
    const { engine } = await start((path) => (path === "retrieve_future" && next.body !== null ? { status: 200, body: next.body } : null));
    return { engine, next };
  }
  const broken = (rows: ReturnType<typeof rowsOf>) => ({
    loss_fn_outputs: rows.map(({ tokens }) => ({ logprobs: { data: Array.from(tokens.subarray(1), (_, t) => (t === 2 ? null : -1)) } })),
  });

  it("among log-probabilities fails the pass, and after a backward pass also the next step", async () => {
    const { engine, next } = await answering();
    const model = await engine.createModel({ base: BASE, lora: { rank: 2 }, seed: 1 });
    const rows = rowsOf(2).map((row) => ({ ...row, weights: row.weights.map((_, t) => (t === 0 ? 0 : 1)) }));
    next.body = broken(rows);
    const failed = { code: "E_NON_FINITE", message: expect.stringContaining("got NaN for token 3 of row 0") as string };
    await expect(engine.forward(model, rows)).rejects.toMatchObject(failed);
    await expect(engine.forwardBackward(model, rows, { kind: "cross-entropy" })).rejects.toMatchObject(failed);
    next.body = null;
    await expect(engine.optimStep(model, plainStep(0.1))).rejects.toMatchObject({ code: "E_ENGINE" });
  });

  it("in a gradient norm or a sampled token is an error", async () => {
    const { engine, next } = await answering();
    const model = await engine.createModel({ base: BASE, lora: { rank: 2 }, seed: 1 });
    const policy = await engine.publish(model);
    await engine.forwardBackward(model, rowsOf(2), { kind: "cross-entropy" });
    next.body = { metrics: { "optim/grad_norm": null } };
    expect(await codeOf(engine.optimStep(model, plainStep(0.1)))).toBe("E_NON_FINITE");
    next.body = { sequences: [{ stop_reason: "length", tokens: [1, 2], logprobs: [-1, null] }] };
    expect(await codeOf(sampleAll(engine, policy, tokensOf(1), params(1)))).toBe("E_NON_FINITE");
  });
});

describe("a lost response", () => {
  it("is requested again with the same sequence number, and the work is done once", async () => {
    const rows = rowsOf(3);
    const norms: number[] = [];
    for (const isLossy of [false, true]) {
      const lost = new Set(isLossy ? ["forward_backward", "optim_step"] : []);
      const { engine, paths } = await start((path) => (lost.delete(path) ? { status: 502, body: {}, isDone: true } : null));
      const model = await engine.createModel({ base: BASE, lora: { rank: 2 }, seed: 1 });
      await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
      norms.push((await engine.optimStep(model, plainStep(0.1))).gradNorm);
      norms.push((await engine.optimStep(model, plainStep(0))).gradNorm);
      expect(paths.filter((path) => path === "forward_backward")).toHaveLength(isLossy ? 2 : 1);
    }
    const [norm, after, lossyNorm, lossyAfter] = norms;
    expect([lossyNorm, lossyAfter, after]).toEqual([norm, 0, 0]);
  });

  it("to an unload is accepted if the model is gone", async () => {
    const lost = new Set(["unload_model"]);
    const { engine, paths } = await start((path) => (lost.delete(path) ? { status: 502, body: {}, isDone: true } : null));
    await engine.unload(await engine.createModel({ base: BASE, lora: { rank: 2 }, seed: 1 }));
    expect(paths.filter((path) => path === "unload_model")).toHaveLength(2);
  });

  it("to a rejected backward pass blocks steps until a state is loaded", async () => {
    let isRefusing = false;
    const { engine } = await start((path) =>
      isRefusing && path === "forward_backward" ? { status: 413, body: { detail: "too much" } } : null,
    );
    const model = await engine.createModel({ base: BASE, lora: { rank: 2 }, seed: 1 });
    const state = await scratchDirectory();
    await engine.saveState(model, state);
    isRefusing = true;
    await expect(engine.forwardBackward(model, rowsOf(1), { kind: "cross-entropy" })).rejects.toMatchObject({
      code: "E_TOO_LARGE",
      message: expect.stringContaining("too much") as string,
    });
    expect(await codeOf(engine.optimStep(model, plainStep(1)))).toBe("E_ENGINE");
    isRefusing = false;
    await engine.loadState(model, state);
    await engine.forwardBackward(model, rowsOf(1), { kind: "cross-entropy" });
    expect((await engine.optimStep(model, plainStep(1))).step).toBe(1);
  });
});

describe("a model", () => {
  it("is unloaded if its caller aborted before it was created", async () => {
    const controller = new AbortController();
    const reason = new Error("enough");
    let isHeld = true;
    const { engine, paths } = await start((path) => {
      if (!isHeld || path !== "retrieve_future") return null;
      controller.abort(reason);
      return { status: 408, body: {} };
    });
    const creating = engine.createModel({ base: BASE, lora: { rank: 2 }, seed: 1 }, { signal: controller.signal });
    await expect(creating).rejects.toBe(reason);
    expect(paths).not.toContain("unload_model");
    isHeld = false;
    await expect.poll(() => paths).toContain("unload_model");
  });

  it("is rejected with the original error if it cannot be unloaded", async () => {
    const { engine, paths } = await start((path) => (path === "unload_model" ? { status: 400, body: {} } : null));
    expect(await codeOf(engine.createModel({ base: BASE, seed: 0, lora: { rank: 2, alpha: 7 } }))).toBe("E_UNSUPPORTED");
    expect(paths).toContain("unload_model");
  });

  it("is saved once for training and once for sampling, and again after a step, also one during saving", async () => {
    const { engine, paths } = await start();
    const model = await engine.createModel({ base: BASE, lora: { rank: 2 }, seed: 1 });
    const saves = () => paths.filter((path) => path.startsWith("save_weights")).toSorted();
    await engine.saveState(model, await scratchDirectory());
    await engine.publish(model);
    await engine.saveState(model, await scratchDirectory());
    expect(saves()).toEqual(["save_weights", "save_weights_for_sampler"]);
    await engine.optimStep(model, plainStep(0));
    await Promise.all([engine.saveState(model, await scratchDirectory()), engine.optimStep(model, plainStep(0))]);
    await engine.saveState(model, await scratchDirectory());
    await engine.publish(model);
    expect(saves().filter((path) => path === "save_weights")).toHaveLength(3);
  });
});

describe("a session", () => {
  it("is replaced if the server lost it", async () => {
    const opened: string[] = [];
    const transport = await startScript((request, response) => {
      if (request.url?.endsWith("session_heartbeat") === true) return answer(opened.length < 2 ? 404 : 200, {})(request, response);
      opened.push(`session ${opened.length}`);
      answer(200, { session_id: opened.at(-1) })(request, response);
    });
    const session = await TinkerSession.open(transport, 100);
    onTestFinished(() => session.close());
    expect([session.id, session.next(), session.next()]).toEqual(["session 0", 0, 1]);
    await expect.poll(() => session.id).toBe("session 1");
    expect(session.next()).toBe(2);
  });
});

describe("closing", () => {
  it("ends running requests without waiting for their retries", async () => {
    let isAsked = false;
    const transport = await startScript((request, response) => {
      isAsked = true;
      answer(503, {})(request, response);
    });
    const waiting = transport.get("get_server_capabilities", capabilitiesAnswer).catch((error: unknown) => error);
    await expect.poll(() => isAsked).toBe(true);
    await transport.close();
    expect(await waiting).toMatchObject({ code: "E_ENGINE", message: expect.stringContaining("closed") as string });
    await expect(transport.future("1", "Sample")).rejects.toThrow("closed");
  });
});

describe("a future", () => {
  it('is polled after 408, "try again" and a server error', async () => {
    const seen: (string | undefined)[] = [];
    const note = (next: ReturnType<typeof answer>) => (request: IncomingMessage, response: ServerResponse) => {
      seen.push(`${request.url} ${String(request.headers["x-api-key"])} ${String(request.headers["x-tinker-request-iteration"])}`);
      next(request, response);
    };
    const transport = await startScript(
      note(answer(408, { detail: "Timeout waiting for result" })),
      note(answer(200, { type: "try_again", request_id: "1", queue_state: "paused_capacity" })),
      note(answer(503, {})),
      note(answer(200, { metrics: {} })),
    );
    const { bytes } = await transport.future("1", "OptimStep");
    expect(JSON.parse(Buffer.from(bytes).toString())).toEqual({ metrics: {} });
    expect(seen).toEqual([0, 1, 2, 2].map((iteration) => `/prefix/api/v1/retrieve_future tml-key ${iteration}`));
  });

  it.each([
    [
      { error: "rank too large", category: "user" },
      200,
      { code: "E_ARGUMENT", message: expect.stringContaining("rank too large") as string },
    ],
    [{ type: "error", error: "no such loss", category: "user" }, 200, { code: "E_ARGUMENT" }],
    [{ error: "out of memory", category: "server" }, 200, { code: "E_ENGINE", retryable: true }],
    [{ detail: "LoRA rank 64 must be between 1 and 32" }, 400, { code: "E_ENGINE", retryable: false }],
    [{ detail: "no money" }, 402, { code: "E_ENGINE", retryable: false }],
    [{ detail: "bad key" }, 401, { code: "E_CONFIG", message: expect.stringContaining("API key") as string }],
    [{ detail: "gone" }, 410, { code: "E_ENGINE" }],
  ])("throws a typed error for %j", async (body, status, error) => {
    const transport = await startScript(answer(status, body));
    await expect(transport.future("1", "ForwardBackward")).rejects.toMatchObject(error);
  });

  it("rejects with the signal's own reason while it is polled", async () => {
    const controller = new AbortController();
    const reason = new Error("enough");
    const transport = await startScript(() => controller.abort(reason));
    await expect(transport.future("1", "Sample", { signal: controller.signal })).rejects.toBe(reason);
  });
});

describe("a start", () => {
  it("is rejected without a common base model and without a server", async () => {
    const { url } = await start();
    const other = { other: BASE_DIRECTORY };
    await expect(createTinkerEngine({ url, baseModels: other })).rejects.toMatchObject({
      code: "E_CONFIG",
      message: expect.stringContaining(BASE) as string,
    });
    expect(await codeOf(createTinkerEngine({ url: "http://127.0.0.1:9", baseModels, patienceMs: 0 }))).toBe("E_ENGINE");
    expect(await codeOf(createTinkerEngine({ url: "ftp://x", baseModels }))).toBe("E_CONFIG");
  });
});

describe("features without a form in the protocol", () => {
  it("are rejected: full training, another scale, random weights, unsupported sampling fields", async () => {
    const { engine } = await start();
    const create = (more: object) => codeOf(engine.createModel({ base: BASE, seed: 0, ...more }));
    expect(await create({})).toBe("E_UNSUPPORTED");
    expect(await create({ lora: { rank: 2, alpha: 7 } })).toBe("E_UNSUPPORTED");
    expect(await create({ lora: { rank: 2, alpha: 32 } })).toBe(null);
    expect(await create({ lora: { rank: 2 }, fresh: true })).toBe("E_UNSUPPORTED");
    const policy = await engine.loadPolicy({ base: BASE });
    for (const [field, more] of [
      ["logit_bias", { logitBias: new Map([[1, 1]]) }],
      ["cache_salt", { cacheSalt: "x" }],
    ] as const)
      await expect(sampleAll(engine, policy, tokensOf(1), params(1, more))).rejects.toMatchObject({ code: "E_UNSUPPORTED", param: field });
    expect(await sampleAll(engine, policy, tokensOf(1), params(1, { minP: 0, priority: 0n, logitBias: new Map() }))).toHaveLength(8);
  });
});
