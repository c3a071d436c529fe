/** Server of an environment in the protocol of OpenEnv: HTTP routes, the WebSockets of the clients, and their ends. */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { WebSocket } from "ws";
import type { Environment } from "../../environment/index.ts";
import { ConfigError } from "../../../base/errors.ts";
import { listenForEpisodes, MAX_REQUEST_BYTES, type EnvironmentServer, type ServeOptions } from "../episode/server.ts";
import { checkServable } from "../episode/tool-environment.ts";
import { ServedOpenEnvSession } from "./served-session.ts";

/** Interval of the pings that detect lost clients, in milliseconds. */
const PING_INTERVAL_MS = 30_000;

/** Time in milliseconds between the closing handshake and the end of a client's connection, when the server is closed. */
const CLOSE_GRACE_MS = 1000;

/** Default of the option `maxSessions`. */
const MAX_SESSIONS = 64;

/**
 * Serves an environment over the WebSocket protocol of OpenEnv 0.3, so that trainers in Python can use it. One connection plays one
 * environment.
 *
 * - `reset`: `index` selects a scenario of `split` ("train" or "eval", default "train"), else `seed` does, modulo their number; without
 *   either, the server takes the next one. The observation has `messages`, the prompt, and `scenario_id`.
 * - `step` with `list_tools` and `call_tool`: the tools of the episode, and `submit` with an `answer`, which ends the episode with the total
 *   reward of the environment's `rewards`. Calls of other tools have reward 0.
 * - Web pages: rejected; a request with an `Origin` header, or on a loopback address with another `Host`, is answered 403.
 * - `GET /health`, `/metadata` and `/schema`. Other HTTP routes, and MCP messages, are rejected: they have no session or no rewards.
 *
 * @param environment - Environment of `defineToolEnvironment`, without group rewards.
 * @param options - Address and maximum number of sessions.
 * @returns the running server.
 * @throws ConfigError `E_CONFIG` for an environment with a rollout of its own or with group rewards, which this protocol does not have, and
 *   for invalid options.
 * @example
 * ```ts
 * import { defineToolEnvironment } from "whetstone/protocols";
 *
 * const echo = defineToolEnvironment({
 *   name: "echo",
 *   scenarios: { train: ["a", "b"], eval: [] },
 *   start: (word) => ({ messages: [{ role: "user", content: `Submit "${word}".` }], tools: [] }),
 *   rewards: [{ name: "same", score: ({ scenario, text }) => text === scenario }],
 * });
 * await using server = await serveOpenEnv(echo, { port: 8000 });
 * console.log(server.url);
 * ```
 */
export async function serveOpenEnv<S>(environment: Environment<S>, options: ServeOptions = {}): Promise<EnvironmentServer> {
  const served = checkServable(environment);
  checkGroupRewards(served);
  const { maxSessions = MAX_SESSIONS } = options;
  // Loaded on first use, so that importing the module stays fast.
  const { WebSocketServer } = await import("ws");
  const sessions = new Map<WebSocket, ServedOpenEnvSession<S>>();
  const sockets = new WebSocketServer({ noServer: true, maxPayload: MAX_REQUEST_BYTES });
  const timer = setInterval(() => pingAll(sessions.keys()), PING_INTERVAL_MS).unref();
  const endSessions = async () => {
    clearInterval(timer);
    for (const socket of sockets.clients) {
      socket.close(1001, "the server is closing");
      setTimeout(() => socket.terminate(), CLOSE_GRACE_MS).unref();
    }
    await Promise.all([...sessions.values()].map((session) => session.close()));
  };
  const { http, server, rejectionOf } = await listenForEpisodes(
    options,
    (request, response) => answerRoute(served, request, response),
    endSessions,
  );
  /** Index of the next scenario, for clients that do not select one. */
  let nextIndex = 0;
  const openSession = (client: WebSocket): void => {
    // A connection error is followed by `close`.
    client.on("error", () => undefined);
    if (sessions.size >= maxSessions) return rejectAtCapacity(client, maxSessions);
    const session = new ServedOpenEnvSession(served, randomUUID(), () => nextIndex++);
    sessions.set(client, session);
    client.on("close", () => {
      sessions.delete(client);
      void session.close();
    });
    answerMessages(client, session);
  };
  http.on("upgrade", (request, socket, head) => {
    const refuseWith = (status: string) => void socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`);
    if (rejectionOf(request) !== null) return refuseWith("403 Forbidden");
    if (pathOf(request) !== "/ws") return refuseWith("404 Not Found");
    sockets.handleUpgrade(request, socket, head, openSession);
  });
  return server;
}

/** @throws ConfigError `E_CONFIG` for an environment with group rewards. */
function checkGroupRewards({ name, groupRewards }: Pick<Environment<never>, "name" | "groupRewards">): void {
  if (groupRewards.length === 0) return;
  const names = groupRewards.map((each) => `\`${each.name}\``).join(", ");
  const message = `Environment \`${name}\` has group rewards (${names}), which OpenEnv does not have; serve it with \`serveOrs\`, or leave them out`;
  throw new ConfigError(message, { param: "environment" });
}

/** Answers every message of a client. A session answers its messages in order and does not reject. */
function answerMessages<S>(client: WebSocket, session: ServedOpenEnvSession<S>): void {
  client.on("message", (data) => {
    void session.answer((data as Buffer).toString("utf8")).then((reply) => {
      if (reply === null) client.close(1000);
      else if (client.readyState === client.OPEN) client.send(JSON.stringify(reply));
    });
  });
}

/** Reports to a client that the server has no free session, and closes its connection. */
function rejectAtCapacity(client: WebSocket, maxSessions: number): void {
  const message = `Server at capacity: ${maxSessions}/${maxSessions} sessions active. Cannot accept new connections.`;
  const data = { message, code: "CAPACITY_REACHED", active_sessions: maxSessions, max_sessions: maxSessions };
  client.send(JSON.stringify({ type: "error", data }));
  client.close(1013);
}

/** Clients that have not answered the last ping. */
const silent = new WeakSet<WebSocket>();

/** Pings all clients, and ends the connection to those that have not answered the last ping. */
function pingAll(clients: Iterable<WebSocket>): void {
  for (const client of clients) {
    if (silent.has(client)) {
      client.terminate();
      continue;
    }
    silent.add(client);
    client.once("pong", () => silent.delete(client)).ping();
  }
}

/** Returns the path of a request without its query. */
function pathOf(request: IncomingMessage): string {
  return (request.url ?? "/").split("?")[0] ?? "/";
}

/** Answers a request of an HTTP route. */
function answerRoute({ name }: { readonly name: string }, request: IncomingMessage, response: ServerResponse): void {
  const send = (status: number, body: object) => {
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  };
  const path = pathOf(request);
  if (path === "/health") return send(200, { status: "healthy" });
  if (path === "/metadata") {
    const absent = { readme_content: null, version: null, author: null, documentation_url: null };
    return send(200, { name, description: `Environment ${name}`, ...absent });
  }
  if (path === "/schema") return send(200, SCHEMAS);
  if (["/reset", "/step", "/state", "/mcp"].includes(path)) {
    return send(501, { detail: `${path} is not served, because HTTP requests have no session with rewards; use the WebSocket at /ws` });
  }
  return send(404, { detail: "Not Found" });
}

/** Response to `GET /schema`. */
const SCHEMAS = {
  action: {
    type: "object",
    properties: { type: { enum: ["list_tools", "call_tool"] }, tool_name: { type: "string" }, arguments: { type: "object" } },
    required: ["type"],
  },
  observation: {
    type: "object",
    properties: { messages: { type: "array" }, tools: { type: "array" }, tool_name: { type: "string" }, result: {}, error: {} },
  },
  state: { type: "object", properties: { episode_id: { type: ["string", "null"] }, step_count: { type: "integer", minimum: 0 } } },
};
