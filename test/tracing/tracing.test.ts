/** Spans of the library and the service, received by the real SDK. */
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { context, propagation, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor, type ReadableSpan } from "@opentelemetry/sdk-trace-base";
import { z } from "zod";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { connect, gatherTrajectoryGroups, trajectory } from "../../src/index.ts";
import { defineTool, runAgent } from "../../src/library/rollout/agent/index.ts";
import { disableTracing, enableTracing } from "../../src/tracing/index.ts";
import { choice, group, startTestService, testBase, type TestService } from "../service/support.ts";

const exporter = new InMemorySpanExporter();
const CHAT = { messages: [{ role: "user" as const, content: "hello there" }], max_tokens: 3, seed: 7, temperature: 0.5 };

/** Registers the SDK as a program does. */
function register(): void {
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
}

/** Returns the ended spans whose name starts with `prefix`, once there are `count`. */
async function spans(prefix: string, count: number): Promise<ReadableSpan[]> {
  const found = () => exporter.getFinishedSpans().filter(({ name }) => name.startsWith(prefix));
  await expect.poll(() => found().length).toBe(count);
  return found();
}

/** Connects the library to a service. */
async function connected({ service }: TestService) {
  return connect({ baseUrl: service.url, apiKey: service.apiKey });
}

beforeEach(() => {
  exporter.reset();
  register();
});

afterEach(() => {
  disableTracing();
  trace.disable();
  context.disable();
  propagation.disable();
});

describe("enableTracing", () => {
  it("is an error without a registered SDK", async () => {
    trace.disable();
    await expect(enableTracing()).rejects.toMatchObject({ code: "E_CONFIG", message: expect.stringContaining("SDK") });
  });

  it("without it nothing is traced, although an SDK is registered", async () => {
    const server = await startTestService();
    const service = await connected(server);
    await service.chat.completions.create({ model: "tiny", ...CHAT });
    expect(exporter.getFinishedSpans()).toEqual([]);
    await service.close();
  });
});

describe("chat completions", () => {
  it("have a span of the service with the attributes of the conventions, and no content", async () => {
    await enableTracing();
    const { ok } = await startTestService();
    const answer = await ok("POST", "/v1/chat/completions", { model: "tiny", ...CHAT, n: 2 }, { headers: { "x-request-id": "r-1" } });
    const [span] = await spans("chat", 1);
    expect(span?.name).toBe("chat tiny");
    expect(span?.kind).toBe(SpanKind.SERVER);
    expect(span?.attributes).toMatchObject({
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "whetstone",
      "gen_ai.request.model": "tiny",
      "gen_ai.request.choice.count": 2,
      "gen_ai.request.temperature": 0.5,
      "gen_ai.request.max_tokens": 3,
      "gen_ai.request.seed": 7,
      "gen_ai.response.id": "chatcmpl-r-1",
      "gen_ai.response.model": "tiny",
      "gen_ai.response.finish_reasons": answer.choices.map((each: { finish_reason: string }) => each.finish_reason),
      "gen_ai.response.time_to_first_chunk": expect.any(Number),
      "gen_ai.usage.input_tokens": answer.usage.prompt_tokens,
      "gen_ai.usage.output_tokens": answer.usage.completion_tokens,
      "whetstone.request.id": "r-1",
      "whetstone.entity": "local",
    });
    expect(JSON.stringify(span?.attributes)).not.toContain("hello there");
  });

  it("have their messages only with `content`", async () => {
    await enableTracing({ content: true });
    const { ok } = await startTestService();
    const answer = await ok("POST", "/v1/chat/completions", CHAT);
    const [span] = await spans("chat", 1);
    const parts = (text: string) => [{ type: "text", content: text }];
    expect(JSON.parse(String(span?.attributes["gen_ai.input.messages"]))).toEqual([{ role: "user", parts: parts("hello there") }]);
    expect(JSON.parse(String(span?.attributes["gen_ai.output.messages"]))).toMatchObject([
      { role: "assistant", parts: parts(answer.choices[0].message.content), finish_reason: answer.choices[0].finish_reason },
    ]);
  });

  it("that fail have the code of the error", async () => {
    await enableTracing();
    const { call } = await startTestService();
    await call("POST", "/v1/chat/completions", { model: "missing", ...CHAT });
    const [span] = await spans("chat missing", 1);
    expect(span?.status.code).toBe(SpanStatusCode.ERROR);
    expect(span?.attributes["error.type"]).toBe("E_NOT_FOUND");
  });

  it("of a stream end with the stream", async () => {
    await enableTracing();
    const { call } = await startTestService();
    await call("POST", "/v1/chat/completions", { ...CHAT, stream: true });
    const [span] = await spans("chat", 1);
    expect(span?.attributes).toMatchObject({ "gen_ai.request.stream": true, "gen_ai.usage.output_tokens": expect.any(Number) });
  });
});

describe("traces of rollouts", () => {
  it("join agent, client, service and tools, with rewards as evaluation events", async () => {
    await enableTracing();
    let turn = 0;
    const server = await startTestService({
      engine: { bases: await testBase(2048) },
      answer: () => (turn++ === 0 ? '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>' : "2"),
    });
    const service = await connected(server);
    const model = await service.models.create({ project: "p", name: "m", baseModel: "tiny" });
    const add = defineTool({ name: "add", schema: z.object({ a: z.number() }), run: ({ a }) => a + 1 });
    await gatherTrajectoryGroups(
      [{ id: "s-1" }],
      async ({ id }, { policy, sampling }) => {
        const t = trajectory({ messages: [{ role: "user", content: "1 + 1?" }], tools: [add], metadata: { scenario_id: id } });
        await runAgent(t, policy, { maxCompletionTokens: 60, ...sampling });
        return t.finish({ reward: 0.5, metrics: { "reward/correct": 1 } });
      },
      {
        groupSize: 1,
        policy: await model.policy(0),
        progress: false,
        traceAttributes: { "whetstone.run.id": "run-1", "whetstone.step": 3, "gen_ai.agent.name": "adder" },
      },
    );
    const [rollout] = await spans("invoke_agent", 1);
    const [tool] = await spans("execute_tool", 1);
    const chats = await spans("chat", 4);
    expect(rollout?.name).toBe("invoke_agent adder");
    expect(rollout?.attributes).toMatchObject({
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.request.model": "local/p/m:step0",
      "whetstone.run.id": "run-1",
      "whetstone.step": 3,
      "whetstone.group": 0,
      "whetstone.scenario_id": "s-1",
      "whetstone.policy_step": 0,
    });
    expect(rollout?.events.map(({ name, attributes }) => [name, attributes])).toEqual([
      ["gen_ai.evaluation.result", { "gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": 0.5 }],
      ["gen_ai.evaluation.result", { "gen_ai.evaluation.name": "reward/correct", "gen_ai.evaluation.score.value": 1 }],
    ]);
    expect(tool?.name).toBe("execute_tool add");
    expect(tool?.attributes).toMatchObject({
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": "add",
      "gen_ai.tool.type": "function",
    });
    expect(tool?.attributes).not.toHaveProperty("gen_ai.tool.call.arguments");
    // One trace: the agent is the parent of tool and client, each client span of one span of the service, through `traceparent`.
    const root = rollout?.spanContext();
    expect(new Set([tool, ...chats].map((span) => span?.spanContext().traceId))).toEqual(new Set([root?.traceId]));
    expect(tool?.parentSpanContext?.spanId).toBe(root?.spanId);
    const clients = chats.filter(({ kind }) => kind === SpanKind.CLIENT);
    const servers = chats.filter(({ kind }) => kind === SpanKind.SERVER);
    expect(clients.map((span) => span.parentSpanContext?.spanId)).toEqual([root?.spanId, root?.spanId]);
    expect(new Set(servers.map((span) => span.parentSpanContext?.spanId))).toEqual(
      new Set(clients.map((span) => span.spanContext().spanId)),
    );
    await service.close();
  });

  it("mark a failed rollout with its error", async () => {
    await enableTracing();
    const failing = gatherTrajectoryGroups([1], () => Promise.reject(new TypeError("broken")), {
      groupSize: 1,
      maxExceptions: 1,
      progress: false,
    });
    await failing;
    const [span] = await spans("invoke_agent", 1);
    expect(span?.status).toMatchObject({ code: SpanStatusCode.ERROR, message: "broken" });
    expect(span?.attributes["error.type"]).toBe("TypeError");
  });
});

describe("training jobs", () => {
  it("have a span with their steps and outcome", async () => {
    await enableTracing();
    const { ok } = await startTestService();
    const model = await ok("POST", "/v1/preview/models", { project: "p", name: "m", base_model: "tiny" });
    const groups = [group({ reward: 1, choices: [choice([5], [6])] }, { reward: 0, choices: [choice([5], [7])] })];
    const { id } = await ok("POST", "/v1/preview/training-jobs", { model_id: model.id, trajectory_groups: groups });
    const [span] = await spans("train", 1);
    expect(span?.name).toBe("train rl");
    expect(span?.attributes).toMatchObject({
      "whetstone.job.id": id,
      "whetstone.model": "local/p/m",
      "whetstone.job.outcome": "succeeded",
    });
    expect(span?.events.map(({ name }) => name)).toEqual(["whetstone.job.step"]);
    expect(span?.events[0]?.attributes).toHaveProperty("whetstone.metrics.loss");
    // Without a trace context in the request, the job has a trace of its own.
    expect(span?.parentSpanContext).toBeUndefined();
  });

  it("continue the trace of the request that created the job", async () => {
    await enableTracing();
    const { ok } = await startTestService();
    const model = await ok("POST", "/v1/preview/models", { project: "p", name: "m", base_model: "tiny" });
    const groups = [group({ reward: 1, choices: [choice([5], [6])] }, { reward: 0, choices: [choice([5], [7])] })];
    const [traceId, spanId] = ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"];
    const headers = { traceparent: `00-${traceId}-${spanId}-01` };
    await ok("POST", "/v1/preview/training-jobs", { model_id: model.id, trajectory_groups: groups }, { headers });
    const [span] = await spans("train", 1);
    expect(span?.spanContext().traceId).toBe(traceId);
    expect(span?.parentSpanContext).toMatchObject({ spanId, isRemote: true });
  });
});
