/** Sessions of a test service: creation, and requests with their keys. */
import type { CreatedSession } from "../../../src/base/schema/index.ts";
import { startTestService, type Answer, type TestService } from "../support.ts";

export const SESSIONS = "/v1/preview/sessions";
export const CHAT = "/v1/chat/completions";

export function createSession({ ok }: TestService, fields: object = {}): Promise<CreatedSession> {
  return ok("POST", SESSIONS, { model: "tiny", ...fields });
}

export const user = (content: string) => ({ role: "user", content });

/** Sends a chat completion with the key of a session. */
export function ask(
  { call }: TestService,
  { key }: Pick<CreatedSession, "key">,
  body: object,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
): Promise<Answer> {
  const { stream } = body as { stream?: boolean };
  const init = { key, headers, ...(signal === undefined ? {} : { signal }) };
  return call("POST", CHAT, { model: "any", max_tokens: 8, ...body, ...(stream === undefined ? {} : { stream }) }, init);
}

/** Returns the chunks of a stream, without `[DONE]`. */
export function chunksOf(text: string): any[] {
  const events = text.split("\n\n").filter((event) => event !== "");
  if (events.pop() !== "data: [DONE]") throw new Error(`The stream has no end: ${text.slice(-200)}`);
  return events.map((event) => JSON.parse(event.slice("data: ".length)));
}

/** Starts a service with an engine that waits before each sampled sequence while `hold` is set. */
export async function heldService(options: { readonly dataDir?: string } = {}) {
  let release: () => void = () => {};
  let held: Promise<void> | null = null;
  const gate = {
    hold: () => {
      held = new Promise((resolve) => (release = resolve));
    },
    release: () => {
      held = null;
      release();
    },
  };
  const service = await startTestService({
    ...options,
    engine: {
      before: async ({ verb }) => {
        if (verb === "sample" && held !== null) await held;
      },
    },
  });
  return { service, gate };
}

/** Returns the number of sampled sequences. */
export const samples = ({ engine }: TestService) => engine.calls.filter(({ verb }) => verb === "sample").length;
