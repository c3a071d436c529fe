/**
 * A service with the nine routes of the interface and nothing else: no events, no job status, no health, no artifacts, no
 * idempotency keys; errors are `{"detail": …}`. What runs against it runs on any service of that interface.
 */
import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A request as the server saw it. */
export interface SeenRequest {
  readonly method: string;
  /** Path with query. */
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  /** Parsed JSON, or the raw text. */
  readonly body: unknown;
  /** The body as it came. */
  readonly text: string;
}

/** Answers a request instead of the route; returns false to let the route answer. */
export type Interceptor = (request: SeenRequest, response: ServerResponse) => boolean | Promise<boolean>;

interface StoredModel {
  readonly id: string;
  readonly entity: string;
  readonly project: string;
  readonly name: string;
  readonly base_model: string;
  readonly run_id: string | null;
  checkpoints: { readonly id: string; readonly step: number; readonly metrics: Record<string, number> }[];
  /** Looks at the checkpoint list until the next job's checkpoint appears. */
  pending: number[];
}

/** A running fixture. */
export interface NineRoutesServer {
  readonly url: string;
  readonly apiKey: string;
  /** Every request, oldest first. */
  readonly requests: SeenRequest[];
  /** Requests that the client aborted before the answer was complete. */
  readonly aborted: SeenRequest[];
  /** Resolves once the client has left a request that was not answered yet. */
  nextAbort(): Promise<void>;
  /** The interceptor in force; replaceable at any time. */
  intercept: Interceptor | undefined;
  close(): Promise<void>;
}

const TEXTS = ["abc", "cba", "bca"];

/** Starts the fixture on a free port. `jobPolls`: how often the checkpoints are listed before a job's checkpoint shows. */
export async function startNineRoutesServer({
  apiKey = "test-key-123",
  jobPolls = 1,
}: { apiKey?: string; jobPolls?: number } = {}): Promise<NineRoutesServer> {
  const models = new Map<string, StoredModel>();
  const jobs = new Set<string>();
  const abortWaiters: (() => void)[] = [];
  const fixture: { intercept: Interceptor | undefined; requests: SeenRequest[]; aborted: SeenRequest[] } = {
    intercept: undefined,
    requests: [],
    aborted: [],
  };

  const http = createServer((incoming, response) => {
    void handle(incoming, response).catch((error: unknown) => {
      if (response.headersSent) response.destroy();
      else send(response, 500, { detail: String(error) });
    });
  });

  async function handle(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString("utf8");
    const request: SeenRequest = {
      method: incoming.method ?? "",
      url: incoming.url ?? "",
      headers: incoming.headers,
      body: parse(text),
      text,
    };
    fixture.requests.push(request);
    response.on("close", () => {
      if (response.writableFinished) return;
      fixture.aborted.push(request);
      for (const wake of abortWaiters.splice(0)) wake();
    });
    if (fixture.intercept !== undefined && (await fixture.intercept(request, response))) return;
    if (incoming.headers.authorization !== `Bearer ${apiKey}`) return send(response, 401, { detail: "Not authenticated" });
    route(request, response);
  }

  function route(request: SeenRequest, response: ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url, "http://fixture");
    const body = (request.body ?? {}) as Record<string, unknown>;
    const key = `${request.method} ${pathname.replace(/\/[0-9a-f-]{36}(?=\/|$)/, "/:id").replace(/\/$/, "")}`;
    const id = /[0-9a-f-]{36}/.exec(pathname)?.[0] ?? "";
    const model = models.get(id);
    switch (key) {
      case "POST /v1/chat/completions":
        return chat(body, response);
      case "GET /v1/models":
        return send(response, 200, {
          object: "list",
          data: [{ id: "tiny", object: "model", created: 0, owned_by: "system", root: "tiny" }],
        });
      case "POST /v1/preview/models": {
        const existing = [...models.values()].find((each) => each.project === body["project"] && each.name === body["name"]);
        if (existing !== undefined)
          return body["return_existing"] === true
            ? send(response, 200, facts(existing))
            : send(response, 409, { detail: "Model already exists" });
        if (typeof body["base_model"] !== "string") {
          return send(response, 422, { detail: [{ loc: ["body", "base_model"], msg: "Field required", type: "missing" }] });
        }
        const made: StoredModel = {
          id: randomUUID(),
          entity: "team",
          project: String(body["project"]),
          name: String(body["name"]),
          base_model: body["base_model"],
          run_id: null,
          checkpoints: [{ id: randomUUID(), step: 0, metrics: {} }],
          pending: [],
        };
        models.set(made.id, made);
        return send(response, 200, facts(made));
      }
      case "DELETE /v1/preview/models/:id":
        if (model === undefined) return send(response, 404, { detail: "Model not found" });
        models.delete(id);
        return send(response, 200, { model_id: id, deleted_checkpoints: model.checkpoints.length, deleted_run: false });
      case "GET /v1/preview/models/:id/checkpoints":
        if (model === undefined) return send(response, 404, { detail: "Model not found" });
        advance(model);
        return send(response, 200, page(model.checkpoints, searchParams));
      case "DELETE /v1/preview/models/:id/checkpoints": {
        if (model === undefined) return send(response, 404, { detail: "Model not found" });
        const steps = body["steps"] as number[];
        const known = new Set(model.checkpoints.map(({ step }) => step));
        model.checkpoints = model.checkpoints.filter(({ step }) => !steps.includes(step));
        return send(response, 200, {
          deleted_count: steps.filter((step) => known.has(step)).length,
          not_found_steps: steps.filter((step) => !known.has(step)),
        });
      }
      case "POST /v1/preview/training-jobs":
      case "POST /v1/preview/sft-training-jobs": {
        const target = models.get(String(body["model_id"]));
        if (target === undefined) return send(response, 404, { detail: "Model not found" });
        target.pending.push(jobPolls);
        const job = randomUUID();
        jobs.add(job);
        return send(response, 200, { id: job });
      }
      case "GET /v1/preview/training-jobs/:id":
        return jobs.has(id) ? send(response, 200, { id }) : send(response, 404, { detail: "Training job not found" });
      default:
        return send(response, 404, { detail: "Not Found" });
    }
  }

  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const { port } = http.address() as AddressInfo;
  return Object.assign(fixture, {
    url: `http://127.0.0.1:${port}`,
    apiKey,
    nextAbort: () => new Promise<void>((resolve) => abortWaiters.push(resolve)),
    close: () =>
      new Promise<void>((resolve) => {
        http.close(() => resolve());
        http.closeAllConnections();
      }),
  });
}

/** Sends a JSON answer. */
export function send(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

function facts({ id, entity, project, name, base_model, run_id }: StoredModel): unknown {
  return { id, entity, project, name, base_model, run_id };
}

/** A job's checkpoint appears after its looks are used up. */
function advance(model: StoredModel): void {
  const [looks] = model.pending;
  if (looks === undefined) return;
  if (looks > 0) {
    model.pending[0] = looks - 1;
    return;
  }
  model.pending.shift();
  const step = (model.checkpoints.at(-1)?.step ?? 0) + 1;
  model.checkpoints.push({ id: randomUUID(), step, metrics: { loss: 0.5 } });
}

function page(all: StoredModel["checkpoints"], query: URLSearchParams): unknown {
  const ordered = query.get("order") === "desc" ? all.toReversed() : all;
  const limit = Number(query.get("limit") ?? 20);
  const after = query.get("after");
  const start = after === null ? 0 : ordered.findIndex(({ id }) => id === after) + 1;
  const data = ordered.slice(start, start + limit);
  return { object: "list", data, first_id: data[0]?.id ?? "", last_id: data.at(-1)?.id ?? "", has_more: start + limit < ordered.length };
}

/** Picks one of three texts by the seed; one token per letter, its code as the id. */
function chat(body: Record<string, unknown>, response: ServerResponse): void {
  const text = TEXTS[Number(body["seed"] ?? 0) % TEXTS.length] as string;
  const letters = text.split("");
  const ids = letters.map((letter) => letter.charCodeAt(0));
  const logprobs = { content: letters.map((token) => ({ token, logprob: -1.1, bytes: null, top_logprobs: [] })) };
  const prompt = { prompt_token_ids: body["return_token_ids"] === true ? [1, 2, 3] : null };
  const common = { id: `chatcmpl-${randomUUID()}`, created: 1, model: typeof body["model"] === "string" ? body["model"] : "tiny" };
  if (body["stream"] === true) {
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
    const chunk = (choice: unknown, extra: object = {}) =>
      response.write(`data: ${JSON.stringify({ ...common, object: "chat.completion.chunk", choices: [choice], ...extra })}\n\n`);
    chunk({ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }, prompt);
    letters.forEach((letter, index) => chunk({ index: 0, delta: { content: letter }, finish_reason: null, token_ids: [ids[index]] }));
    chunk({ index: 0, delta: {}, finish_reason: "stop", token_ids: [] });
    response.end("data: [DONE]\n\n");
    return;
  }
  send(response, 200, {
    ...common,
    object: "chat.completion",
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: text, tool_calls: [] },
        logprobs: body["logprobs"] === true ? logprobs : null,
        finish_reason: "stop",
        stop_reason: null,
        token_ids: body["return_token_ids"] === true ? ids : null,
      },
    ],
    usage: { prompt_tokens: 3, completion_tokens: 3, total_tokens: 6 },
    ...prompt,
  });
}

function parse(text: string): unknown {
  try {
    return text === "" ? undefined : JSON.parse(text);
  } catch {
    return text;
  }
}
