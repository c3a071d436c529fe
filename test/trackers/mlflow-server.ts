/** Tracking server for the tests that checks every request against the REST interface that MLflow documents, and keeps the data. */
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { z } from "zod";

// https://mlflow.org/docs/latest/rest-api.html, with the limits of `runs/log-batch` and of names and values.
const key = z
  .string()
  .min(1)
  .max(250)
  .regex(/^[/\w.\- :]*$/u)
  .refine((name) => !name.split("/").some((part) => part === "" || part === "." || part === ".."), "a path that is not normalized");
const timestamp = z.int().min(0);
const tag = z.strictObject({ key, value: z.string().max(8_000) });
const metric = z.strictObject({ key, value: z.number(), timestamp, step: z.int() });
const batch = z
  .strictObject({
    run_id: z.string().regex(/^[a-f\d]{32}$/u),
    metrics: z.array(metric).max(1_000).default([]),
    params: z
      .array(z.strictObject({ key, value: z.string().max(6_000) }))
      .max(100)
      .default([]),
    tags: z.array(tag).max(100).default([]),
  })
  .refine(({ metrics, params, tags }) => metrics.length + params.length + tags.length <= 1_000);
const schemas = {
  "/api/2.0/mlflow/experiments/create": z.strictObject({
    name: z.string().min(1),
    artifact_location: z.string().optional(),
    tags: z.array(tag).optional(),
  }),
  "/api/2.0/mlflow/runs/create": z.strictObject({
    experiment_id: z.string(),
    run_name: z.string(),
    start_time: timestamp,
    tags: z.array(tag),
  }),
  "/api/2.0/mlflow/runs/search": z.strictObject({
    experiment_ids: z.array(z.string()),
    filter: z.string(),
    max_results: z.int().max(50_000),
  }),
  "/api/2.0/mlflow/runs/update": z.strictObject({
    run_id: z.string(),
    status: z.enum(["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]),
    end_time: timestamp.optional(),
  }),
  "/api/2.0/mlflow/runs/log-batch": batch,
};

// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
const attributes = z.array(
  z.strictObject({
    key: z.string(),
    value: z.union([
      z.strictObject({ stringValue: z.string() }),
      z.strictObject({ intValue: z.string().regex(/^-?\d+$/u) }),
      z.strictObject({ doubleValue: z.number() }),
    ]),
  }),
);
const nanoseconds = z.string().regex(/^\d+$/u);
const span = z.strictObject({
  traceId: z.string().regex(/^[a-f\d]{32}$/u),
  spanId: z.string().regex(/^[a-f\d]{16}$/u),
  name: z.string(),
  kind: z.int().min(1).max(5),
  startTimeUnixNano: nanoseconds,
  endTimeUnixNano: nanoseconds,
  status: z.strictObject({ code: z.int().min(0).max(2) }),
  attributes,
  events: z.array(z.strictObject({ name: z.string(), timeUnixNano: nanoseconds, attributes })),
});
const traces = z.strictObject({
  resourceSpans: z.array(
    z.strictObject({
      resource: z.strictObject({ attributes }),
      scopeSpans: z.array(z.strictObject({ scope: z.strictObject({ name: z.string() }), spans: z.array(span) })),
    }),
  ),
});

/** Run on the server. */
export interface StoredRun {
  readonly runId: string;
  readonly name: string;
  readonly tags: Readonly<Record<string, string>>;
  readonly params: Map<string, string>;
  /** Values by key, step and time, as an SQL store keeps them: a value logged twice is stored once. */
  readonly metrics: Map<string, z.infer<typeof metric>>;
  readonly spans: Map<string, z.infer<typeof span>>;
  status: string;
}

/** Options of {@link startMlflowServer}. */
export interface MlflowServerOptions {
  /** Answers a request itself with this status; null lets the server answer. */
  readonly answer?: (path: string, count: number) => number | null;
}

/** Starts the server on a free port for the current test. */
export async function startMlflowServer({ answer = () => null }: MlflowServerOptions = {}) {
  const runs = new Map<string, StoredRun>();
  const experiments = new Map<string, string>();
  const requests: { readonly path: string; readonly authorization: string | undefined; readonly problem: string | null }[] = [];
  const handlers: Readonly<Record<string, (body: any) => unknown>> = {
    "/api/2.0/mlflow/experiments/create": ({ name }) => {
      experiments.set(name, String(experiments.size + 1));
      return { experiment_id: experiments.get(name) };
    },
    "/api/2.0/mlflow/runs/create": ({ run_name: name, tags }) => {
      const runId = String(runs.size + 1).padStart(32, "0");
      const byKey = Object.fromEntries(tags.map((each: { key: string; value: string }) => [each.key, each.value]));
      runs.set(runId, { runId, name, tags: byKey, params: new Map(), metrics: new Map(), spans: new Map(), status: "RUNNING" });
      return { run: { info: { run_id: runId } } };
    },
    "/api/2.0/mlflow/runs/search": ({ filter }) => {
      const [, name = "", value = ""] = /^tags\.`([^`]+)` = '([^']*)'$/u.exec(filter) ?? [];
      const found = [...runs.values()].filter(({ tags }) => tags[name] === value);
      return found.length === 0 ? {} : { runs: found.map(({ runId }) => ({ info: { run_id: runId } })) };
    },
    "/api/2.0/mlflow/runs/update": ({ run_id: runId, status }) => {
      runs.get(runId)!.status = status;
      return {};
    },
    "/api/2.0/mlflow/runs/log-batch": ({ run_id: runId, metrics, params }: z.infer<typeof batch>) => {
      const run = runs.get(runId)!;
      for (const { key: name, value } of params) {
        if ((run.params.get(name) ?? value) !== value) throw new Error(`changing the parameter ${name} is not allowed`);
        run.params.set(name, value);
      }
      for (const each of metrics) run.metrics.set(JSON.stringify(each), each);
      return {};
    },
  };
  const respond = async (request: IncomingMessage): Promise<[number, unknown]> => {
    const url = new URL(request.url ?? "", "http://localhost");
    const forced = answer(url.pathname, requests.filter(({ path }) => path === url.pathname).length);
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (forced !== null) return [forced, { error_code: "FORCED", message: `status ${forced}` }];
    if (url.pathname === "/api/2.0/mlflow/experiments/get-by-name") {
      const id = experiments.get(url.searchParams.get("experiment_name") ?? "");
      return id === undefined ? [404, { error_code: "RESOURCE_DOES_NOT_EXIST" }] : [200, { experiment: { experiment_id: id } }];
    }
    if (request.method !== "POST" || request.headers["content-type"] !== "application/json") throw new Error("expected a POST of JSON");
    const value = JSON.parse(Buffer.concat(chunks).toString()) as unknown;
    if (url.pathname === "/v1/traces") {
      const run = runs.get(String(request.headers["x-mlflow-run-id"]));
      if (run === undefined || request.headers["x-mlflow-experiment-id"] === undefined) throw new Error("expected the ids in headers");
      for (const each of traces.parse(value).resourceSpans[0]!.scopeSpans[0]!.spans) run.spans.set(`${each.traceId}/${each.spanId}`, each);
      return [200, {}];
    }
    const schema = schemas[url.pathname as keyof typeof schemas];
    return [200, handlers[url.pathname]!(schema.parse(value))];
  };
  const server = createServer((request, response) => {
    const seen = { path: new URL(request.url ?? "", "http://localhost").pathname, authorization: request.headers.authorization };
    void respond(request)
      .then(([status, body]) => [status, body, null] as const)
      .catch((error: unknown) => [400, { error_code: "INVALID_PARAMETER_VALUE", message: String(error) }, String(error)] as const)
      .then(([status, body, problem]) => {
        requests.push({ ...seen, problem });
        response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
      });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, runs, requests };
}
