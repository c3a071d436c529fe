/** Forwarding of chat completions to another server that samples the model. Request and response bodies pass unchanged except for names. */
import { setMaxListeners } from "node:events";
import { access } from "node:fs/promises";
import { join, relative } from "node:path";
import { UpstreamAdapters, type AdapterLease } from "../../../engine/upstream/adapters.ts";
import { upstreamText, type Upstream, type UpstreamAnswer } from "../../../engine/upstream/upstream.ts";
import { EngineError, OverloadedError, UnsupportedError } from "../../../base/errors.ts";
import { CHAT_FIELDS, type ChatField } from "../../../base/schema/chat-fields.ts";
import { getOrThrow, messageOf } from "../../../base/util/values.ts";
import type { Members } from "../../../dialects/index.ts";
import type { ServiceLogger } from "../../common/logger.ts";
import { requestField, type RequestScope, type ServiceObserver } from "../../observability/observer.ts";
import { rememberingFind, resolvedNameOf, type FoundCheckpoint } from "../../models/policies.ts";
import type { StoredFiles } from "../../stored-files/stored-files.ts";
import type { Store } from "../../store/tables.ts";
import type { Principal } from "../../http/principal.ts";
import type { Charged } from "../../quotas/quotas.ts";
import { observeChat } from "../../quotas/observe-chat.ts";
import { ForwardedObservation } from "./observed.ts";
import { passedRefusal, unavailable, type ForwardedAnswer } from "./answers.ts";
import type { Visibility } from "../../store/visibility.ts";
import { cacheSaltOf, sharedCacheError } from "../request/cache-salt.ts";
import { requestSignal } from "../request/client-signal.ts";
import { withTokenLimit, type TokenLimit } from "../request/effective-request.ts";
import { FIELD_NAMES } from "../request/fields.ts";
import type { ForwardableRequest } from "../request/opened-chat.ts";
import { forwardedStream } from "./forwarded-stream.ts";
import { IgnoredFieldLog } from "../request/ignored-fields.ts";
import { memberText, withMember, withoutMember } from "../text/json-members.ts";
import { isRecord, parseJson } from "../../../base/util/values.ts";

/** Options of {@link ChatForwarder}. */
export interface ForwarderOptions {
  readonly upstream: Upstream;
  readonly store: Store;
  readonly files: Pick<StoredFiles, "openCheckpoint">;
  /** Data directory; the paths of state directories are relative to it. */
  readonly root: string;
  /** Base model for requests that name no model. */
  readonly defaultBase: string;
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
  /** Accounts that the request is charged to; null for none. */
  readonly charged: Charged | null;
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  /** Limits of the output tokens in the body that are lowered to `maxOutputTokens`. @default none */
  readonly limits?: readonly TokenLimit[] | undefined;
  /** Max output tokens of each choice, also where the body does not limit them. @default the limit of the body */
  readonly maxOutputTokens?: number | undefined;
}

/** Model of a forwarded request. */
interface Target {
  /** Name of the model on the upstream. */
  readonly name: string;
  /** Value of `model` in the response. */
  readonly resolvedName: string;
  /** Max tokens of prompt and output; null if the upstream does not report it. */
  readonly contextLength: number | null;
  /** Releases the adapter that the request holds. */
  readonly release: () => void;
  /** Called if the upstream responds that it does not have the model. */
  readonly forget: () => void;
}

/** Max characters of an upstream's answer in a log entry. */
const MAX_LOGGED_CHARACTERS = 500;

/** Callbacks for a base model, which is always loaded on the upstream. */
const NO_LEASE = { release: () => {}, forget: () => {} };

/** Sender of chat completions to the upstream. Loads the adapters of trained models into the upstream when requests need them. */
export class ChatForwarder {
  readonly #options: ForwarderOptions;
  readonly #adapters: UpstreamAdapters;
  readonly #find: ReturnType<typeof rememberingFind>;
  readonly #unknownFields = new IgnoredFieldLog(
    "A forwarded chat completion request carries a field that neither this service nor the upstream's description names; the upstream may ignore it",
  );

  constructor(options: ForwarderOptions) {
    this.#options = options;
    // Each running request adds a listener and removes it when it ends.
    if (options.signal !== undefined) setMaxListeners(0, options.signal);
    this.#find = rememberingFind(options.store);
    this.#adapters = new UpstreamAdapters(options.upstream, (error) =>
      options.logger.warn("An adapter could not be unloaded from the upstream", { error: messageOf(error) }),
    );
  }

  /**
   * Forwards a request to the upstream.
   *
   * @returns The response, or null for a request to be handled locally: its model is not sampled by the upstream.
   * @throws UnsupportedError `E_UNSUPPORTED` for a field that the upstream does not support or confirm; other errors as the chat route maps
   *   them.
   */
  async forward(call: ForwardCall): Promise<ForwardedAnswer | null> {
    try {
      return await this.#forward(call);
    } catch (error) {
      if (!(error instanceof OverloadedError)) throw error;
      this.#options.logger.error("The upstream cannot be reached", { ...requestField(call.scope), error: messageOf(error.cause) });
      return unavailable(error.message);
    }
  }

  /** Whether the upstream samples the model of a request. */
  async samples({ model }: ForwardableRequest, { visibility }: Principal): Promise<boolean> {
    const target = await this.#target(model, visibility);
    target?.release();
    return target !== null;
  }

  /** Sends the request to the upstream, and releases its adapter when the answer or its stream ends. */
  async #forward(call: ForwardCall): Promise<ForwardedAnswer | null> {
    const target = await this.#target(call.request.model, call.principal.visibility);
    if (target === null) return null;
    let isStreaming = false;
    const { signal, release } = requestSignal(call.signal, this.#options.signal);
    let observation: ForwardedObservation | null = null;
    const onEnd = (error: unknown) => {
      observation?.end(error);
      release();
      target.release();
    };
    let failure: unknown = null;
    try {
      observation = this.#observe(call, target);
      const asked = await this.#bodyFor(target, limitedText(call, target), call);
      const body = observation === null ? asked : await this.#withUsage(asked, target, call.request);
      const { upstream } = this.#options;
      const answer = await upstream.post("/v1/chat/completions", body, { signal, requestId: call.requestId });
      if (answer.status >= 400) {
        failure = new EngineError(`The upstream answered ${answer.status}`);
        return await this.#refusal(answer, target, call.scope);
      }
      const rename = target.name === target.resolvedName ? null : target.resolvedName;
      if (answer.contentType.includes("text/event-stream")) {
        isStreaming = true;
        const { asksForUsage } = call.request;
        const onEvent = observation === null ? undefined : (json: string) => observation!.takeEvent(json) && !asksForUsage;
        return { kind: "stream", events: forwardedStream(answer.body, { rename, onEnd, onEvent }) };
      }
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
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      // A stream outlives this call and releases its resources when it ends.
      if (!isStreaming) onEnd(failure);
    }
  }

  /** Charges a request to its accounts, and returns its observation; null if nobody observes it. */
  #observe({ request, charged, scope, dialect }: ForwardCall, { name, resolvedName: model }: Target): ForwardedObservation | null {
    const { choices, isStream } = request;
    const messages = () => (parseJson(request.text()) as { readonly messages?: readonly unknown[] }).messages ?? [];
    const observer = observeChat(this.#options.observer, charged, { scope, dialect, model, choices, isStream, messages });
    return observer === null ? null : new ForwardedObservation(observer, { base: name, model });
  }

  /** Returns the body of a stream with a request for its token counts, where the upstream supports it. */
  async #withUsage(body: string, { name }: Target, { isStream, asksForUsage }: ForwardableRequest): Promise<string> {
    if (!isStream || asksForUsage || !(await this.#options.upstream.capabilities.supports("stream_options", name))) return body;
    const options = parseJson(memberText(body, "stream_options") ?? "null");
    return withMember(body, "stream_options", JSON.stringify({ ...(isRecord(options) ? options : {}), include_usage: true }));
  }

  /** Returns the model to request from the upstream; null if the model is sampled locally. */
  async #target(model: unknown, visibility: Visibility): Promise<Target | null> {
    const { upstream, defaultBase } = this.#options;
    const id = model === undefined || model === null || model === "" ? defaultBase : model;
    if (typeof id !== "string") return null;
    const base = upstream.baseModels.get(id);
    // The local route rejects a key that may not sample base models.
    if (base !== undefined && visibility.modelId !== null) return null;
    if (base !== undefined) return { name: base, resolvedName: id, contextLength: upstream.contextLengthOf(id), ...NO_LEASE };
    // The local route rejects unknown names.
    const found = await this.#find(id, [], visibility).catch(() => null);
    const name = found === null ? undefined : upstream.baseModels.get(found.model.base_model);
    if (found === null || name === undefined) return null;
    const { model: row, checkpoint } = found;
    const resolvedName = resolvedNameOf(id, found);
    const contextLength = upstream.contextLengthOf(row.base_model);
    // Step 0 is the base model itself: a new adapter changes nothing.
    if (checkpoint.state_dir === null) return { name, resolvedName, contextLength, ...NO_LEASE };
    if (upstream.options.adapters !== true || row.lora === null) return null;
    const lease = await this.#leaseAdapter(found, resolvedName);
    return { ...lease, resolvedName, contextLength };
  }

  /** Leases the adapter of a checkpoint. Its files exist as long as the lease, because the upstream may read them at any time. */
  async #leaseAdapter({ model, checkpoint }: FoundCheckpoint, resolvedName: string): Promise<AdapterLease> {
    const opened = await this.#options.files.openCheckpoint(model, checkpoint);
    try {
      const path = await this.#adapterPath(opened.path, resolvedName);
      const lease = await this.#adapters.lease(`whetstone-${checkpoint.id}`, path);
      const release = () => {
        lease.release();
        opened.release();
      };
      return { ...lease, release };
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

  /** Returns the body with the upstream's names; every other byte is unchanged, so that numbers keep all their digits. */
  async #bodyFor({ name }: Target, body: string, { request: { fields, unknownFields }, principal }: ForwardCall): Promise<string> {
    const { capabilities } = this.#options.upstream;
    let forwarded = withMember(body, "model", JSON.stringify(name));
    for (const [field, isWithoutEffect] of fields) {
      const { alias = field }: ChatField = CHAT_FIELDS[getOrThrow(FIELD_NAMES, field)];
      const isRenamed = alias !== field && capabilities.describes(alias) === true;
      if (isRenamed && !capabilities.refuses(field) && !capabilities.refuses(alias)) {
        forwarded = withMember(withoutMember(forwarded, field), alias, memberText(body, field) ?? "null");
        continue;
      }
      if (isWithoutEffect || (await capabilities.supports(field, name))) continue;
      throw new UnsupportedError(
        `The server that samples this model does not support \`${field}\`, or does not confirm that it does; leave it out` +
          (capabilities.describes(field) === null ? ", or list it in the service's option `upstream.supportedFields`" : ""),
        { param: field },
      );
    }
    const unknown = unknownFields.filter((field) => capabilities.describes(field) !== true);
    this.#unknownFields.report(unknown, this.#options.logger);
    return this.#salted(forwarded, name, principal);
  }

  /** Returns the body with a salt that separates the prefix cache of the caller's entity from other ones. */
  async #salted(body: string, name: string, principal: Principal): Promise<string> {
    const text = memberText(body, "cache_salt");
    const asked = text === undefined ? null : (JSON.parse(text) as string | null);
    const salt = cacheSaltOf(asked, principal);
    if (salt === asked) return body;
    if (!(await this.#options.upstream.capabilities.supports("cache_salt", name)))
      throw sharedCacheError("The server that samples this model does not confirm that it supports `cache_salt`: it");
    return withMember(body, "cache_salt", JSON.stringify(salt));
  }

  /** Converts an error of the upstream into a response: client errors with the upstream's message, all others without details. */
  async #refusal(answer: UpstreamAnswer, { name, forget }: Target, scope: RequestScope): Promise<ForwardedAnswer> {
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
      forget();
      return unavailable("The server that samples this model does not have it any more");
    }
    throw new EngineError(`The upstream answered ${answer.status}`);
  }
}

/** Returns the text of a body with the limit of its output tokens, unless the model's context is shorter anyway. */
function limitedText({ request, limits = [], maxOutputTokens: max }: ForwardCall, { contextLength }: Target): string {
  const text = withTokenLimit(request.text(), limits, max ?? null);
  const isLimited = ["max_completion_tokens", "max_tokens"].some((name) => request.fields.has(name));
  if (max === undefined || isLimited || max >= (contextLength ?? Infinity)) return text;
  return withMember(text, "max_completion_tokens", String(max));
}

/** Returns the members of a JSON object; null for anything else. */
function membersOf(body: string): Members | null {
  const value = parseJson(body);
  return isRecord(value) ? value : null;
}
