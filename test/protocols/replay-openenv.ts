import { readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { WebSocketServer } from "ws";
import { isEqualJson } from "./equal-json.ts";

/** Request and response recorded from the server of openenv-core. */
export interface Exchange {
  readonly request: unknown;
  readonly response: { readonly type: string; readonly data: Readonly<Record<string, unknown>> };
}

/** Recorded exchanges, see test/oracle/environment-protocols/openenv_record.py. */
export const { exchanges } = JSON.parse(readFileSync(new URL("../oracle/environment-protocols/openenv.json", import.meta.url), "utf8")) as {
  readonly exchanges: readonly Exchange[];
};

/** Server that answers each request with the response recorded for an equal request, and closes the session at any other. */
export interface ReplayServer {
  readonly baseUrl: string;
  /** Types of the frames received, over all sessions. */
  readonly received: string[];
  /** Resolves when a session has ended. */
  readonly ended: Promise<void>;
  close(): void;
}

/** Starts a {@link ReplayServer}; `answer` overrides the recorded response of a frame: null for none, "drop" to cut the connection. */
export async function replayOpenEnv(answer: (request: string) => string | null | undefined = () => undefined): Promise<ReplayServer> {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", path: "/ws" });
  await new Promise((resolve) => server.once("listening", resolve));
  const received: string[] = [];
  const ended = new Promise<void>((resolve) => {
    server.on("connection", (socket) => {
      socket.on("close", () => resolve());
      socket.on("message", (data) => {
        const text = (data as Buffer).toString("utf8");
        const request = JSON.parse(text) as { readonly type: string };
        received.push(request.type);
        const override = answer(text);
        if (override === "drop") return socket.terminate();
        if (override === null || request.type === "close") return;
        const recorded = exchanges.find((each) => isEqualJson(each.request, request));
        if (override === undefined && recorded === undefined) return socket.close(4000, `not recorded: ${text}`);
        socket.send(override ?? JSON.stringify(recorded?.response));
      });
    });
  });
  return { baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received, ended, close: () => server.close() };
}
