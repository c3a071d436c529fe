/** A conversation with a real server, recorded, and a server that says the same again. */
import { readFileSync } from "node:fs";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** Request and answer recorded from a SkyRL server. */
export interface Exchange {
  readonly method: string;
  readonly path: string;
  readonly request: Record<string, unknown> | null;
  readonly status: number;
  readonly response: unknown;
}

/** The whole conversation. */
export const exchanges: readonly Exchange[] = readFileSync(join(import.meta.dirname, "transcript.jsonl"), "utf8")
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line) as Exchange);

/** Returns the kind of a request, which selects its recorded answer: its path, and the keys that determine the operation. */
function kindOf(path: string, body: Record<string, unknown> | null): string {
  const deciding = ["request_id", "sampling_session_id", "model_path", "base_model", "sampling_session_seq_id"];
  const values = deciding.flatMap((key) => {
    if (body?.[key] === undefined) return [];
    return [key === "request_id" ? `${key}=${String(body[key])}` : key];
  });
  return [path, ...values].join(" ");
}

/** Request received by the replaying server, without polls and heartbeats, because their number depends on timing. */
export interface Received {
  readonly path: string;
  // Tests look into bodies of every shape.
  readonly body: any;
}

/**
 * Starts a server that replays recorded answers, in their order for each kind of request. A request that was not recorded is
 * an error of the test.
 */
export async function startReplayServer(): Promise<{ readonly url: string; readonly received: readonly Received[] }> {
  const left = [...exchanges];
  const received: Received[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const text = Buffer.concat(chunks).toString();
      const body = text === "" ? null : (JSON.parse(text) as Record<string, unknown>);
      const path = request.url ?? "";
      const send = (status: number, value: unknown) => {
        response.writeHead(status, { "content-type": "application/json" });
        response.end(JSON.stringify(value));
      };
      // Those that the recording has not: of the same server, by its sources.
      if (path === "/") return send(200, { name: "Tinker API Mock" });
      if (path.endsWith("/get_server_capabilities")) return send(200, { supported_models: [{ model_name: "models/tiny" }] });
      if (path.endsWith("/session_heartbeat")) return send(200, { type: "session_heartbeat" });
      if (!path.endsWith("/retrieve_future")) received.push({ path: path.replace("/api/v1/", ""), body });
      const kind = kindOf(path, body);
      const at = left.findIndex((exchange) => exchange.status < 300 && kindOf(exchange.path, exchange.request) === kind);
      if (at === -1) return send(500, { detail: `nothing like it was recorded: ${kind}` });
      send(left[at]!.status, left.splice(at, 1)[0]!.response);
    })();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received };
}
