/**
 * Forwarding of chat completions to the servers of an upstream, which sample the model. `ChatForwarder.forward` tries one server after the
 * other.
 *
 * Bodies are changed as JSON text and otherwise pass unchanged. A request gets the upstream's names of model and fields, the limit of output
 * tokens, the salt of the prefix cache, and for observed streams a request for token counts. An answer gets the name of the model.
 */
import { setMaxListeners } from "node:events";
import { access } from "node:fs/promises";
import { join, relative } from "node:path";
import type { UpstreamCapabilities } from "../../../engine/upstream/capabilities.ts";
import type { PooledServer } from "../../../engine/upstream/pool.ts";
import { upstreamText, type UpstreamAnswer } from "../../../engine/upstream/upstream.ts";
import { EngineError, OverloadedError, UnsupportedError } from "../../../base/errors.ts";
import { CHAT_FIELDS, type ChatField } from "../../../base/schema/chat-fields.ts";
import { getOrThrow, isRecord, messageOf, parseJson } from "../../../base/util/values.ts";
import type { Members } from "../../../dialects/index.ts";
import type { ServiceLogger } from "../../common/logger.ts";
import { requestField, type RequestScope, type ServiceObserver } from "../../observability/observer.ts";
import type { StoredFiles } from "../../stored-files/stored-files.ts";
import type { Principal } from "../../http/principal.ts";
import type { Charged } from "../../quotas/quotas.ts";
import { observeChat } from "../../quotas/observe-chat.ts";
import { ForwardedObservation } from "./observed.ts";
import { limitedText, salted } from "./body.ts";
import { passedRefusal, unavailable, type ForwardedAnswer } from "./answers.ts";
import { requestSignal } from "../request/client-signal.ts";
import type { TokenLimit } from "../request/effective-request.ts";
import { FIELD_NAMES } from "../request/fields.ts";
import type { ForwardableRequest } from "../request/opened-chat.ts";
import { forwardedStream } from "./forwarded-stream.ts";
import { TargetResolver, type Target, type TargetOptions } from "./target.ts";
import { IgnoredFieldLog } from "../request/ignored-fields.ts";
import { memberText, withMember, withoutMember } from "../text/json-members.ts";

/** Options of {@link ChatForwarder}. */
export interface ForwarderOptions extends TargetOptions {
  readonly files: Pick<StoredFiles, "openCheckpoint">;
  /** Data directory; the paths of state directories are relative to it. */
  readonly root: string;
  readonly logger: ServiceLogger;
  readonly observer: ServiceObserver;
  /** Aborted when the service ends the requests that still run. @default never */
  readonly signal?: AbortSignal | undefined;
}

/** Chat completion request to forward. */
export interface ForwardCall {
  readonly request: ForwardableRequest;
  readonly scope: RequestScope;
  readonly requestId: string | undefined;
  readonly principal: Principal;
  /** API of the request, such as `chat` or `messages`. */
  readonly dialect: string;
  /** Session that the request belongs to; null for none. */
  readonly session: string | null;
  /** Accounts that the request is charged to; null for none. */
  readonly charged: Charged | null;
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  /** Limits of output tokens in the body, which are lowered to `maxOutputTokens` if they are larger. @default none */
  readonly limits?: readonly TokenLimit[] | undefined;
  /** Max output tokens of each choice, also where the body does not limit them. @default the limit of the body */
  readonly maxOutputTokens?: number | undefined;
}

/** Use of a model on one server, for one request. */
interface ModelUse {
  /** Ends the use. */
  readonly release: () => void;
  /** Marks the model as not loaded, after the server has responded that it does not have the model. */
  readonly forget: () => void;
}

/** Options for reading a whole answer. */
interface WholeOptions {
  readonly rename: string | null;
  readonly call: ForwardCall;
  readonly observation: ForwardedObservation | null;
}

/** Max characters of an upstream's answer in a log entry. */
const MAX_LOGGED_CHARACTERS = 500;

/** Sender of chat completions to the upstream. Loads the adapters of trained models into the upstream when requests need them. */
export class ChatForwarder {
  readonly #options: ForwarderOptions;
  readonly #targets: TargetResolver;
  readonly #unknownFields = new IgnoredFieldLog(
    "A forwarded chat completion request carries a field that neither this service nor the upstream's description names; the upstream may ignore it",
  );

  constructor(options: ForwarderOptions) {
    this.#options = options;
    // Each running request adds a listener and removes it when it ends.
    if (options.signal !== undefined) setMaxListeners(0, options.signal);
    this.#targets = new TargetResolver(options);
  }

  /**
   * Forwards a request to a server of the upstream, and to another one if the server cannot answer.
   *
   * @returns The response, or null for a request to be handled locally: its model is not sampled by the upstream.
   * @throws UnsupportedError `E_UNSUPPORTED` for a field that the upstream does not support or confirm; other errors as the chat route maps
   *   them.
   */
  async forward(call: ForwardCall): Promise<ForwardedAnswer | null> {
    const target = await this.#targets.resolve(call.request.model, call.principal.visibility);
    if (target === null) return null;
    const observation = this.#observe(call, target);
    const answer = await this.#toAnyServer(call, target, observation).catch((error: unknown) => {
      observation?.end(error);
      throw error;
    });
    // A stream reports its end itself.
    if (answer.kind === "whole") observation?.end(null);
    if (answer.kind === "refusal") observation?.end(new EngineError(`The upstream answered ${answer.status}`));
    return answer;
  }

  /** Whether the upstream samples the model of a request. */
  async samples({ model }: ForwardableRequest, { visibility }: Principal): Promise<boolean> {
    return (await this.#targets.resolve(model, visibility)) !== null;
  }

  /**
   * Sends the request to one server after the other, until one answers. A full server (429) is skipped; an unavailable one (503, or without a
   * connection) is also marked as down. If no server answers, returns the answer of the last one.
   */
  async #toAnyServer(call: ForwardCall, target: Target, observation: ForwardedObservation | null): Promise<ForwardedAnswer> {
    const { upstream, logger } = this.#options;
    const tried = new Set<PooledServer>();
    let answer = unavailable("All servers that sample this model are drained; send the request again in a moment");
    for (;;) {
      const server = upstream.choose(call.session, tried);
      if (server === undefined) return answer;
      tried.add(server);
      try {
        answer = await this.#toServer(server, call, { target, observation });
        if (answer.kind !== "refusal") return answer;
        if (answer.status === 429) continue;
        if (answer.status !== 503) return answer;
      } catch (error) {
        if (!(error instanceof OverloadedError)) throw error;
        logger.error("The upstream cannot be reached", { ...requestField(call.scope), server: server.url, error: messageOf(error.cause) });
        answer = unavailable(error.message);
      }
      server.markDown();
    }
  }

  /** Sends the request to a server, and releases its adapter when the answer or its stream ends. */
  async #toServer(
    server: PooledServer,
    call: ForwardCall,
    { target, observation }: { readonly target: Target; readonly observation: ForwardedObservation | null },
  ): Promise<ForwardedAnswer> {
    const { signal, release: removeListener } = requestSignal(call.signal, this.#options.signal);
    let use: ModelUse | null = null;
    let isStreaming = false;
    server.running++;
    const releaseAll = () => {
      server.running--;
      removeListener();
      use?.release();
    };
    try {
      use = await this.#startUse(server, target);
      let body = await this.#bodyFor(server, target, call);
      if (observation !== null) body = await this.#withUsage(body, server, { target, request: call.request });
      const answer = await server.upstream.post("/v1/chat/completions", body, { signal, requestId: call.requestId });
      if (answer.status >= 400) return await this.#refusal(answer, { target, use, scope: call.scope });
      const rename = target.name === target.resolvedName ? null : target.resolvedName;
      if (!answer.contentType.includes("text/event-stream")) return await this.#whole(answer, { rename, call, observation });
      isStreaming = true;
      const onEnd = (error: unknown) => {
        observation?.end(error);
        releaseAll();
      };
      const { requestsUsage } = call.request;
      const onEvent =
        observation === null
          ? undefined
          : (json: string) => {
              const isUsageEvent = observation.takeEvent(json);
              // The client gets the event with token counts only if it has requested it.
              return isUsageEvent && !requestsUsage;
            };
      return { kind: "stream", events: forwardedStream(answer.body, { rename, onEnd, onEvent }) };
    } finally {
      // A stream outlives this call and releases its resources when it ends.
      if (!isStreaming) releaseAll();
    }
  }

  /** Reads a whole answer. `rename` is the new value of `model`; null leaves it unchanged. */
  async #whole(answer: UpstreamAnswer, { rename, call, observation }: WholeOptions): Promise<ForwardedAnswer> {
    const text = await upstreamText(answer);
    const members = membersOf(text);
    if (members === null) {
      this.#options.logger.error("The upstream answered a chat completion with something else than a JSON object", {
        ...requestField(call.scope),
        contentType: answer.contentType,
        answer: text.slice(0, MAX_LOGGED_CHARACTERS),
      });
      throw new EngineError("The upstream answered with something else than a JSON object");
    }
    observation?.take(members);
    if (rename === null) return { kind: "whole", members, json: text };
    return { kind: "whole", members: { ...members, model: rename }, json: withMember(text, "model", JSON.stringify(rename)) };
  }

  /** Charges a request to its accounts, and returns its observation; null without accounts and observers. */
  #observe({ request, charged, scope, dialect }: ForwardCall, { base, resolvedName: model }: Target): ForwardedObservation | null {
    const { choices, isStream } = request;
    const messages = () => (parseJson(request.text()) as { readonly messages?: readonly unknown[] }).messages ?? [];
    const observer = observeChat(this.#options.observer, charged, { scope, dialect, model, choices, isStream, messages });
    return observer === null ? null : new ForwardedObservation(observer, { base, model });
  }

  /** Returns the body of a stream with a request for its token counts, where the upstream supports it. */
  async #withUsage(
    body: string,
    { upstream }: PooledServer,
    { target, request: { isStream, requestsUsage } }: { readonly target: Target; readonly request: ForwardableRequest },
  ): Promise<string> {
    if (!isStream || requestsUsage || !(await upstream.capabilities.supports("stream_options", target.name))) return body;
    const options = parseJson(memberText(body, "stream_options") ?? "null");
    return withMember(body, "stream_options", JSON.stringify({ ...(isRecord(options) ? options : {}), include_usage: true }));
  }

  /** Starts the use of a model on a server. The files of an adapter exist as long as its use, because the server may read them at any time. */
  async #startUse({ adapters }: PooledServer, { adapter, name, resolvedName }: Target): Promise<ModelUse> {
    if (adapter === null) return { release: () => {}, forget: () => {} };
    const opened = await this.#options.files.openCheckpoint(adapter.model, adapter.checkpoint);
    try {
      const lease = await adapters.lease(name, await this.#adapterPath(opened.path, resolvedName));
      const release = () => {
        lease.release();
        opened.release();
      };
      return { release, forget: () => lease.forget() };
    } catch (error) {
      opened.release();
      throw error;
    }
  }

  /** Returns the path of a checkpoint as the upstream sees it. @throws EngineError `E_ENGINE` for a checkpoint without an adapter. */
  async #adapterPath(local: string, resolvedName: string): Promise<string> {
    const { root, upstream } = this.#options;
    await access(join(local, "adapter_config.json")).catch((cause: unknown) => {
      throw new EngineError(`Checkpoint '${resolvedName}' has no adapter that an upstream could load`, { cause });
    });
    return upstream.options.dataDir === undefined ? local : join(upstream.options.dataDir, relative(root, local));
  }

  /**
   * Returns the body with the upstream's names of model and fields, the limit of output tokens, and the salt of the caller; every other byte
   * is unchanged, so that numbers keep all their digits.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` for a field with an effect that the upstream does not support or confirm.
   */
  async #bodyFor({ upstream: { capabilities } }: PooledServer, target: Target, call: ForwardCall): Promise<string> {
    const { fields, unknownFields } = call.request;
    const { name: model } = target;
    const limited = limitedText(call, target.contextLength);
    let body = withMember(limited, "model", JSON.stringify(model));
    for (const [field, isWithoutEffect] of fields) {
      const alias = aliasFor(field, capabilities);
      if (alias !== null) {
        body = withMember(withoutMember(body, field), alias, memberText(limited, field) ?? "null");
        continue;
      }
      if (isWithoutEffect || (await capabilities.supports(field, model))) continue;
      throw new UnsupportedError(
        `The server that samples this model does not support \`${field}\`, or does not confirm that it does; leave it out` +
          (capabilities.describes(field) === null ? ", or list it in the service's option `upstream.supportedFields`" : ""),
        { param: field },
      );
    }
    const unknown = unknownFields.filter((field) => capabilities.describes(field) !== true);
    this.#unknownFields.report(unknown, this.#options.logger);
    return salted(body, call.principal, () => capabilities.supports("cache_salt", model));
  }

  /** Converts an error of the upstream into a response: client errors with the upstream's message, all others without details. */
  async #refusal(
    answer: UpstreamAnswer,
    { target: { name }, use, scope }: { readonly target: Target; readonly use: ModelUse; readonly scope: RequestScope },
  ): Promise<ForwardedAnswer> {
    const text = await upstreamText(answer);
    const passed = passedRefusal(answer, text);
    if (passed !== null) return passed;
    this.#options.logger.error("The upstream refused a chat completion", {
      ...requestField(scope),
      status: answer.status,
      model: name,
      answer: text.slice(0, MAX_LOGGED_CHARACTERS),
    });
    if (answer.status === 404) {
      // A restarted upstream has lost its adapters; the next request loads this one again.
      use.forget();
      return unavailable("The server that samples this model does not have it any more");
    }
    throw new EngineError(`The upstream answered ${answer.status}`);
  }
}

/** Returns the other name of a field if the upstream describes the field under that name; null if the field keeps its name. */
function aliasFor(field: string, capabilities: UpstreamCapabilities): string | null {
  const { alias = field }: ChatField = CHAT_FIELDS[getOrThrow(FIELD_NAMES, field)];
  if (alias === field || capabilities.refuses(field) || capabilities.refuses(alias)) return null;
  return capabilities.describes(alias) === true ? alias : null;
}

/** Returns the members of a JSON object; null for anything else. */
function membersOf(body: string): Members | null {
  const value = parseJson(body);
  return isRecord(value) ? value : null;
}
