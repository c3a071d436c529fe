/**
 * HTTP routes of a server of the Open Reward Standard (openreward 0.1). Tool calls and group scores are operations: they run one at a time in
 * a session, and answer with an event stream that a client can resume by its `task_id`.
 */
import { randomUUID } from "node:crypto";
import { Hono, type Context } from "hono";
import { bodyLimit } from "hono/body-limit";
import { HTTPException } from "hono/http-exception";
import { z } from "zod";
import { scoreGroup } from "../../environment/rollout.ts";
import { isAbort } from "../../../base/errors.ts";
import { TrajectoryGroup, trajectory } from "../../../base/trajectory/index.ts";
import { MAX_REQUEST_BYTES } from "../episode/server.ts";
import { describedTool, SUBMIT } from "../episode/served-episode.ts";
import type { ToolEnvironment } from "../episode/tool-environment.ts";
import { fromOrsMessages, toOrsMessages } from "./messages.ts";
import type { ServedOrsSession, ServedSessions, SplitName } from "./served-sessions.ts";
import { messages } from "./wire.ts";
import { messageOf } from "../../../base/util/values.ts";

/** Maximum characters of one event of a result, as in the Python package openreward. */
const CHUNK_CHARACTERS = 4096;

/** Maximum number of results per session that are kept for clients that resume. */
const MAX_RESULTS = 16;

/** Interval of the comments that keep an event stream alive, in milliseconds. */
const PING_INTERVAL_MS = 10_000;

/** Types of message blocks that the server sends and accepts. */
const BLOCK_TYPES = ["text", "tool_call", "tool_result"];

const splitName = z.enum(["train", "eval"]);
/** Position of a task in its split. */
const taskIndex = z.number().int().nonnegative();
/** Body of `/num_tasks` and `/tasks`. */
const splitBody = z.looseObject({ split: splitName });
/** Body of `/task`. */
const taskBody = z.looseObject({ split: splitName, index: taskIndex });
/** Body of `/task_range`: `stop` is exclusive. */
const rangeBody = z.looseObject({ split: splitName, start: taskIndex.nullish(), stop: taskIndex.nullish() });
/** Body of `/create`: the task as `task_spec`, or as `split` and `index`. */
const createBody = z.looseObject({
  env_name: z.string().nullish(),
  task_spec: z.looseObject({ split: splitName, index: taskIndex }).nullish(),
  split: splitName.nullish(),
  index: taskIndex.nullish(),
  toolset_name: z.string().nullish(),
});
/** Body of `/call`; with `task_id`, the client resumes an earlier call. */
const callBody = z.looseObject({ name: z.string(), input: z.record(z.string(), z.unknown()), task_id: z.string().nullish() });
/** Body of `/score_group`; with `task_id`, the client resumes an earlier request. */
const groupBody = z.looseObject({ candidates: z.array(z.looseObject({ messages })).min(1), task_id: z.string().nullish() });

/**
 * Returns the routes of the Open Reward Standard for one environment. Its own routes work with and without its name at the start of the
 * path.
 */
export function orsRoutes<S>(environment: ToolEnvironment<S>, sessions: ServedSessions<S>): Hono {
  const name = environment.name.toLowerCase();
  const app = new Hono();
  app.use(
    bodyLimit({
      maxSize: MAX_REQUEST_BYTES,
      onError: (c) => c.json({ detail: `Expected a body of at most ${MAX_REQUEST_BYTES} bytes` }, 413),
    }),
  );
  app.onError((error, c) => {
    if (error instanceof HTTPException) return c.json({ detail: error.message }, error.status);
    return c.json({ detail: `${error.name}: ${error.message}` }, 500);
  });
  app.notFound((c) => c.json({ detail: `Not Found; the only environment is \`${name}\`` }, 404));

  app.get("/health", (c) => c.json({ status: "ok" }));
  app.get("/list_environments", (c) => c.json([name]));
  app.post("/create_session", () => eventStream(randomUUID(), Promise.resolve("")));
  app.post("/create", async (c) => {
    const id = sessionId(c);
    const { split, position } = requestedTask(await bodyOf(c, createBody), name);
    if (position >= sessions.count(split)) fail(400, "Invalid index");
    if (sessions.has(id)) fail(400, "Session already exists");
    if (sessions.isFull) fail(429, "The server has no free session; end one, or raise `maxSessions`");
    await sessions.start(id, split, position);
    return c.json({ sid: id });
  });
  app.post("/ping", (c) => {
    // `sessionOf` restarts the idle timeout of the session.
    sessionOf(c, sessions);
    return c.json({ status: "ok" });
  });
  const end = async (c: Context) => {
    const id = sessionId(c);
    await sessions.end(id);
    return c.json({ sid: id });
  };
  app.post("/delete", end);
  app.post("/delete_session", end);

  const environmentApp = environmentRoutes(environment, sessions, name);
  app.route("/", environmentApp);
  app.route(`/${encodeURIComponent(name)}`, environmentApp);
  return app;
}

/** Returns the task that a body of `/create` selects; answers an error for a toolset, another environment, and a body without a task. */
function requestedTask(body: z.output<typeof createBody>, name: string): { readonly split: SplitName; readonly position: number } {
  if (body.toolset_name !== null && body.toolset_name !== undefined)
    fail(400, `unknown toolset '${body.toolset_name}'; this server has none`);
  if ((body.env_name ?? name).toLowerCase() !== name) fail(404, `unknown environment '${body.env_name}'; the only one is '${name}'`);
  const split = body.task_spec?.split ?? body.split ?? null;
  const position = body.task_spec?.index ?? body.index ?? null;
  if (split !== null && position !== null) return { split, position };
  return fail(422, "Expected `task_spec` with `split` and `index`, as `tasks` lists it, or both of them");
}

/** Returns the routes of the environment: splits, tasks, tools, prompts, calls and group scores. */
function environmentRoutes<S>(environment: ToolEnvironment<S>, sessions: ServedSessions<S>, name: string): Hono {
  const app = new Hono();
  const terminal = { name: SUBMIT.name, arg: SUBMIT.arg, description: SUBMIT.description };
  const capabilities = {
    terminal_tool: terminal,
    supports_score_group: environment.groupRewards.length > 0,
    message_block_types: BLOCK_TYPES,
  };
  const taskAt = (split: SplitName, position: number) => ({ id: `${split}/${position}`, split, index: position });
  const tasksIn = (split: SplitName, start: number, stop: number) =>
    Array.from({ length: Math.max(0, stop - start) }, (_, offset) => taskAt(split, start + offset));

  app.get("/splits", (c) =>
    c.json([
      { name: "train", type: "train" },
      { name: "eval", type: "validation" },
    ]),
  );
  // Tools belong to an episode: only a session has them.
  app.get("/tools", (c) => c.json({ tools: [], ...capabilities }));
  app.post("/num_tasks", async (c) => c.json({ num_tasks: sessions.count((await bodyOf(c, splitBody)).split) }));
  app.post("/tasks", async (c) => {
    const { split } = await bodyOf(c, splitBody);
    return c.json({ tasks: tasksIn(split, 0, sessions.count(split)), env_name: name });
  });
  app.post("/task", async (c) => {
    const { split, index: position } = await bodyOf(c, taskBody);
    if (position >= sessions.count(split)) fail(400, "Invalid index");
    return c.json({ task: taskAt(split, position), env_name: name });
  });
  app.post("/task_range", async (c) => {
    const { split, start, stop } = await bodyOf(c, rangeBody);
    const count = sessions.count(split);
    if ((stop ?? count) > count) fail(400, "Invalid index range");
    return c.json({ tasks: tasksIn(split, start ?? 0, stop ?? count), env_name: name });
  });
  app.get("/task_tools", (c) => {
    return c.json({ tools: sessionOf(c, sessions).episode.tools.map(describedTool), ...capabilities });
  });
  app.get("/messages", (c) => c.json(toOrsMessages(sessionOf(c, sessions).episode.messages, BLOCK_TYPES)));
  app.get("/prompt", (c) => c.json(toOrsMessages(sessionOf(c, sessions).episode.messages, []).flatMap(({ blocks }) => blocks)));
  app.post("/call", async (c) => {
    const session = sessionOf(c, sessions);
    const { name: tool, input, task_id: taskId } = await bodyOf(c, callBody);
    return resumable(session, taskId, () => callTool(session, tool, input));
  });
  app.post("/score_group", async (c) => {
    const session = sessionOf(c, sessions);
    if (environment.groupRewards.length === 0) fail(404, `Environment '${name}' has no group rewards`);
    const { candidates, task_id: taskId } = await bodyOf(c, groupBody);
    return resumable(session, taskId, () => groupScores(environment, session.scenario, candidates));
  });
  return app;
}

/** Runs a tool call. A tool's own error is a successful call with the error as text. @returns the JSON of the result. */
async function callTool<S>({ episode }: ServedOrsSession<S>, name: string, input: Record<string, unknown>): Promise<string> {
  const refused = (reason: string, error: string) => JSON.stringify({ ok: false, error, reason });
  const succeeded = (text: string, end: { readonly reward: number | null; readonly finished: boolean }) =>
    JSON.stringify({ ok: true, output: { blocks: [{ type: "text", text, detail: null }], metadata: null, ...end } });
  if (episode.isDone) return refused("episode_finished", `'${name}' was not run: the episode has finished`);
  if (name === SUBMIT.name) {
    const answer = input[SUBMIT.arg];
    if (typeof answer !== "string") return refused("input_validation", `Expected \`${SUBMIT.arg}\` to be a string, got ${typeof answer}`);
    return succeeded("The episode has ended.", { reward: await episode.submit(answer), finished: true });
  }
  const result = await episode.call(name, input);
  if (result === null) return refused("not_found", `'${name}' is not a valid tool`);
  return succeeded(result.text, { reward: null, finished: false });
}

/** Computes the group rewards of candidates. @returns the JSON of the scores. @throws RewardError `E_REWARD` if one fails. */
async function groupScores<S>(
  environment: ToolEnvironment<S>,
  scenario: S,
  candidates: readonly { readonly messages: z.output<typeof messages> }[],
): Promise<string> {
  const trajectories = candidates.map(({ messages: list }) => trajectory({ messages: fromOrsMessages(list) }).finish({ reward: 0 }));
  const group = await scoreGroup(environment, scenario, new TrajectoryGroup({ trajectories }), new AbortController().signal);
  const [failure] = group.exceptions;
  if (failure !== undefined) throw new Error(failure.message);
  return JSON.stringify({ scores: group.trajectories.map(({ reward }) => ({ reward, metadata: null })) });
}

/**
 * Runs an operation of a session after the earlier ones, or returns the result of the operation that a client resumes.
 *
 * @param taskId - Id of the operation to resume; null or undefined for a new one.
 */
function resumable<S>(session: ServedOrsSession<S>, taskId: string | null | undefined, run: () => Promise<string>): Response {
  if (taskId !== null && taskId !== undefined) {
    return eventStream(taskId, session.results.get(taskId) ?? Promise.reject(new Error("unknown task_id")));
  }
  const id = randomUUID();
  const result = session.queue.add(run);
  session.results.set(id, result);
  const [oldest] = session.results.keys();
  if (session.results.size > MAX_RESULTS && oldest !== undefined) session.results.delete(oldest);
  return eventStream(id, result);
}

/** Returns the event stream of an operation: its id, and its result in chunks or its error. */
function eventStream(taskId: string, result: Promise<string>): Response {
  const encoder = new TextEncoder();
  let pingTimer: NodeJS.Timeout | undefined;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      const send = (text: string) => controller.enqueue(encoder.encode(text));
      send(eventText("task_id", taskId));
      // Comments keep the connection alive while a tool runs.
      pingTimer = setInterval(() => send(": ping\r\n\r\n"), PING_INTERVAL_MS);
      const errorText = (error: unknown) => eventText("error", isAbort(error) ? "the session was deleted" : messageOf(error));
      result
        .then(resultText, errorText)
        .then((text) => {
          clearInterval(pingTimer);
          send(text);
          controller.close();
        })
        // The client has left: a cancelled stream accepts no chunks.
        .catch(() => undefined);
    },
    cancel: () => clearInterval(pingTimer),
  });
  return new Response(body, { headers: { "content-type": "text/event-stream", "cache-control": "no-cache" } });
}

/** Returns the events of a result: `chunk` events and a last `end` event. */
function resultText(result: string): string {
  const count = Math.max(1, Math.ceil(result.length / CHUNK_CHARACTERS));
  const chunks = Array.from({ length: count }, (_, index) => result.slice(index * CHUNK_CHARACTERS, (index + 1) * CHUNK_CHARACTERS));
  return chunks.map((chunk, index) => eventText(index === count - 1 ? "end" : "chunk", chunk)).join("");
}

/** Returns a server-sent event. */
function eventText(type: string, data: string): string {
  const lines = data.split(/\r\n|\r|\n/u).map((line) => `data: ${line}\r\n`);
  return `event: ${type}\r\n${lines.join("")}\r\n`;
}

/** Returns the id of a request's session; answers 400 without one. */
function sessionId(c: Context): string {
  return c.req.header("x-session-id")?.trim() ?? fail(400, "X-Session-ID header is required");
}

/** Returns the session that a request names; answers 404 for an unknown session. */
function sessionOf<S>(c: Context, sessions: ServedSessions<S>): ServedOrsSession<S> {
  return sessions.get(sessionId(c)) ?? fail(404, "Active environment not found");
}

/** Parses the body of a request; answers 400 for an unknown split, and 422 for any other body that does not match. */
async function bodyOf<T extends z.ZodType>(c: Context, schema: T): Promise<z.output<T>> {
  const body: unknown = await c.req.json().catch(() => fail(422, "Expected a JSON body"));
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const isSplit = parsed.error.issues.some(({ path }) => path.at(-1) === "split");
  return isSplit ? fail(400, "Invalid split") : fail(422, z.prettifyError(parsed.error));
}

/** Answers a request with an error. */
function fail(status: 400 | 404 | 422 | 429, message: string): never {
  throw new HTTPException(status, { message });
}
