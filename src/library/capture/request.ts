/** Recognition of sampling requests by path and body, and the fields that training adds to them, for each API dialect. */
import type { DialectName, Members } from "../../dialects/index.ts";
import type { JsonObject } from "../../base/schema/index.ts";
import { parseJson } from "../../base/util/values.ts";

/** Request that a client is about to send. */
export interface SamplingCall {
  readonly dialect: DialectName;
  readonly url: URL;
  readonly model: string;
  /** Body as the client wrote it, parsed. */
  readonly body: Members;
}

/** Endings of the paths of routes that sample. The first match counts: `/chat/completions` also ends in `/completions`. */
const PATHS: readonly (readonly [RegExp, DialectName])[] = [
  [/\/chat\/completions\/?$/u, "chat"],
  [/\/completions\/?$/u, "completions"],
  [/\/responses\/?$/u, "responses"],
  [/\/messages\/?$/u, "messages"],
  [/\/inference\/v1\/generate\/?$/u, "generate"],
];

/** Returns the dialect in which a request can sample, judged by method and URL; undefined for any other request. */
export function dialectOf(method: string, url: string): DialectName | undefined {
  if (method.toUpperCase() !== "POST" || !URL.canParse(url)) return undefined;
  const { pathname } = new URL(url);
  return PATHS.find(([path]) => path.test(pathname))?.[1];
}

/** Parses a request from the text of its body; null for any other body. */
export function readSamplingCall(dialect: DialectName, url: string, text: string): SamplingCall | null {
  const body = parseJson(text);
  if (typeof body !== "object" || body === null || !("model" in body) || typeof body.model !== "string") return null;
  return { dialect, url: new URL(url), model: body.model, body: { ...body } };
}

/** Fields to add to recorded requests. */
export interface AddedFields {
  /** Variables of the chat template; a variable that a request sets itself is kept. Not added to prompts of text or token ids. */
  readonly chatTemplateKwargs?: Readonly<JsonObject> | undefined;
  /** Whether to request token ids and log-probabilities. */
  readonly tokens: boolean;
}

/** Returns the body as it is sent, with the added fields. */
export function recordedBody(call: SamplingCall, { chatTemplateKwargs, tokens }: AddedFields): Members {
  const body = chatTemplateKwargs === undefined ? call.body : withKwargs(call, chatTemplateKwargs);
  return tokens ? withTokens({ ...call, body }) : body;
}

/** Adds the template variables that the request does not set. */
function withKwargs({ dialect, body }: SamplingCall, chatTemplateKwargs: Readonly<JsonObject>): Members {
  if (dialect === "completions" || dialect === "generate") return body;
  const requestKwargs = body["chat_template_kwargs"] ?? {};
  // An invalid value is left to the service, which rejects it.
  if (typeof requestKwargs !== "object" || Array.isArray(requestKwargs)) return body;
  return { ...body, chat_template_kwargs: { ...chatTemplateKwargs, ...requestKwargs } };
}

/** Adds the fields that request token ids and log-probabilities. A count of 0 requests the sampled tokens without alternatives. */
function withTokens({ dialect, body }: SamplingCall): Members {
  switch (dialect) {
    case "completions": {
      // An echoed prompt is not recorded. The fields would request its log-probabilities, too, which a stream does not have.
      if (body["echo"] === true) return body;
      return { ...body, logprobs: body["logprobs"] ?? 0, return_token_ids: true };
    }
    case "generate": {
      const { logprobs, ...sampling } = (body["sampling_params"] ?? {}) as Members;
      return { ...body, sampling_params: { ...sampling, logprobs: logprobs ?? 0 } };
    }
    default:
      return { ...body, logprobs: true, return_token_ids: true };
  }
}

/** Returns the names in `chatTemplateKwargs` that a request does not set; none for a request with a prompt of text or token ids. */
export function missingKwargs({ dialect, body }: SamplingCall, chatTemplateKwargs: Readonly<JsonObject> = {}): string[] {
  if (dialect === "completions" || dialect === "generate") return [];
  return Object.keys(chatTemplateKwargs).filter((name) => !Object.hasOwn(Object(body["chat_template_kwargs"]), name));
}
