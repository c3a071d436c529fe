import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { isEqualJson } from "./equal-json.ts";

/** HTTP exchange recorded from the server of openreward. */
export interface OrsExchange {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

/** Recorded exchanges, see test/oracle/environment-protocols/ors_record.py. */
export const { exchanges } = JSON.parse(readFileSync(new URL("../oracle/environment-protocols/ors.json", import.meta.url), "utf8")) as {
  readonly exchanges: readonly OrsExchange[];
};

/** Response of an override: "drop" cuts the connection after the `task_id` event of the recorded response. */
export type Override = Partial<Pick<OrsExchange, "status" | "type" | "text">> & { readonly headers?: Record<string, string> };

/** Starts a server that answers each request with the response recorded for an equal one, and 599 without one. */
export async function replayOrs(override: (path: string, body: unknown, count: number) => Override | "drop" | undefined = () => undefined) {
  const received: { readonly path: string; readonly body: unknown; readonly session: string | undefined }[] = [];
  const server = createServer((request, response) => {
    void textOf(request).then((text) => {
      const body: unknown = text === "" ? null : JSON.parse(text);
      const path = request.url ?? "";
      const changed = override(path, body, received.filter((each) => each.path === path).length);
      received.push({ path, body, session: request.headers["x-session-id"] as string | undefined });
      const { task_id: _, ...rest } = (body ?? {}) as Record<string, unknown>;
      const recorded = exchanges.find(
        (each) => each.method === request.method && each.path === path && isEqualJson(each.body, body === null ? null : rest),
      );
      const unknown = { status: 599, type: "application/json", text: `{"detail":"not recorded: ${path}"}` };
      const answer = { ...unknown, ...recorded, ...(changed === "drop" ? {} : changed) };
      response.writeHead(answer.status, { "content-type": answer.type, ...(changed === "drop" ? {} : changed?.headers) });
      if (changed !== "drop") return response.end(answer.text);
      response.write(answer.text.slice(0, answer.text.indexOf("event: end")), () => response.destroy());
      return undefined;
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => server.close();
  return { baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received, close };
}

async function textOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString("utf8");
}
