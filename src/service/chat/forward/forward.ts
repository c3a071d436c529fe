/** Forwarding of chat completions to another server that samples the model. Request and response bodies pass unchanged except for names. */
import { setMaxListeners } from "node:events";
import { access } from "node:fs/promises";
import { join, relative } from "node:path";
import type { PooledServer, UpstreamPool } from "../../../engine/upstream/pool.ts";
import { upstreamText, type UpstreamAnswer } from "../../../engine/upstream/upstream.ts";
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
import { limitedText, salted } from "./body.ts";
import { passedRefusal, unavailable, type ForwardedAnswer } from "./answers.ts";
import type { Visibility } from "../../store/visibility.ts";
import { requestSignal } from "../request/client-signal.ts";
import type { TokenLimit } from "../request/effective-request.ts";
import { FIELD_NAMES } from "../request/fields.ts";
import type { ForwardableRequest } from "../request/opened-chat.ts";
import { forwardedStream } from "./forwarded-stream.ts";
import { IgnoredFieldLog } from "../request/ignored-fields.ts";
import { memberText, withMember, withoutMember } from "../text/json-members.ts";
import { isRecord, parseJson } from "../../../base/util/values.ts";

/** Options of {@link ChatForwarder}. */
export interface ForwarderOptions {
  readonly upstream: UpstreamPool;
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
  /** Session that the request belongs to; null for none. */
  readonly session: string | null;
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
  /** Name of the base model, or of the adapter, on the upstream. */
  readonly name: string;
  /** Identifier of the base model. */
  readonly base: string;
  /** Value of `model` in the response. */
  readonly resolvedName: string;
  /** Max tokens of prompt and output; null if the upstream does not report it. */
  readonly contextLength: number | null;
  /** Checkpoint of the adapter; null for a base model, which is always loaded on the upstream. */
  readonly adapter: FoundCheckpoint | null;
}

/** Use of a model on one server. */
interface Use {
  /** Ends the use. */
  readonly release: () => void;
  /** Called if the server responds that it does not have the model. */
  readonly forget: () => void;
}

/** Max characters of an upstream's answer in a log entry. */
const MAX_LOGGED_CHARACTERS = 500;

/** Sender of chat completions to the upstream. Loads the adapters of trained models into the upstream when requests need them. */
export class ChatForwarder {
  readonly #options: ForwarderOptions;
  readonly #find: ReturnType<typeof rememberingFind>;
  readonly #unknownFields = new IgnoredFieldLog(
    "A forwarded chat completion request carries a field that neither this service nor the upstream's description names; the upstream may ignore it",
  );

  constructor(options: ForwarderOptions) {
    this.#options = options;
    // Each running request adds a listener and removes it when it ends.
    if (options.signal !== undefined) setMaxListeners(0, options.signal);
    this.#find = rememberingFind(options.store);
  }

  /**
   * Forwards a request to a server of the upstream, and to another one if the server cannot answer.
   *
   * @returns The response, or null for a request to be handled locally: its model is not sampled by the upstream.
   * @throws UnsupportedError `E_UNSUPPORTED` for a field that the upstream does not support or confirm; other errors as the chat route maps
   *   them.
   */
  async forward(call: ForwardCall): Promise<ForwardedAnswer | null> {
    const target = await this.#target(call.request.model, call.principal.visibility);
    if (target === null) return null;
    const observation = this.#observe(call, target);
    let failure: unknown = new EngineError("The upstream did not answer");
    let answer: ForwardedAnswer | null = null;
    try {
      answer = await this.#toAnyServer(call, target, observation);
      failure = answer.kind === "refusal" ? new EngineError(`The upstream answered ${answer.status}`) : null;
      return answer;
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      // A stream reports its end itself.
      if (answer?.kind !== "stream") observation?.end(failure);
    }
  }

  /** Whether the upstream samples the model of a request. */
  async samples({ model }: ForwardableRequest, { visibility }: Principal): Promise<boolean> {
    return (await this.#target(model, visibility)) !== null;
  }

  /** Sends the request to one server after the other, until one answers. */
  async #toAnyServer(call: ForwardCall, target: Target, observation: ForwardedObservation | null): Promise<ForwardedAnswer> {
    const { upstream, logger } = this.#options;
    const tried = new Set<PooledServer>();
    let answer = unavailable("All servers that sample this model are drained; send the request again in a moment");
    for (let server = upstream.choose(call.session, tried); server !== undefined; server = upstream.choose(call.session, tried)) {
      tried.add(server);
      try {
        answer = await this.#toServer(server, call, { target, observation });
        const isFull = answer.kind === "refusal" && answer.status === 429;
        if (isFull) continue;
        if (answer.kind !== "refusal" || answer.status !== 503) return answer;
      } catch (error) {
        if (!(error instanceof OverloadedError)) throw error;
        logger.error("The upstream cannot be reached", { ...requestField(call.scope), server: server.url, error: messageOf(error.cause) });
        answer = unavailable(error.message);
      }
      server.markDown();
    }
    return answer;
  }

  /** Sends the request to a server, and releases its adapter when the answer or its stream ends. */
  async #toServer(
    server: PooledServer,
    call: ForwardCall,
    { target, observation }: { readonly target: Target; readonly observation: ForwardedObservation | null },
  ): Promise<ForwardedAnswer> {
    const { signal, release } = requestSignal(call.signal, this.#options.signal);
    let use: Use | null = null;
    let isStreaming = false;
    server.running++;
    const onEnd = () => {
      server.running--;
      release();
      use?.release();
    };
    try {
      use = await this.#use(server, target);
      const asked = await this.#bodyFor(server, target, { call, body: limitedText(call, target.contextLength) });
      const body = observation === null ? asked : await this.#withUsage(asked, server, { target, request: call.request });
      const answer = await server.upstream.post("/v1/chat/completions", body, { signal, requestId: call.requestId });
      if (answer.status >= 400) return await this.#refusal(answer, { target, use, scope: call.scope });
      const rename = target.name === target.resolvedName ? null : target.resolvedName;
      if (!answer.contentType.includes("text/event-stream")) return await this.#whole(answer, { rename, call, observation });
      isStreaming = true;
      const onStreamEnd = (error: unknown) => {
        observation?.end(error);
        onEnd();
      };
      const { asksForUsage } = call.request;
      const onEvent = observation === null ? undefined : (json: string) => observation.takeEvent(json) && !asksForUsage;
      return { kind: "stream", events: forwardedStream(answer.body, { rename, onEnd: onStreamEnd, onEvent }) };
    } finally {
      // A stream outlives this call and releases its resources when it ends.
      if (!isStreaming) onEnd();
    }
  }

  /** Reads a whole answer. */
  async #whole(
    answer: UpstreamAnswer,
    {
      rename,
      call,
      observation,
    }: { readonly rename: string | null; readonly call: ForwardCall; readonly observation: ForwardedObservation | null },
  ): Promise<ForwardedAnswer> {
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

  /** Charges a request to its accounts, and returns its observation; null if nobody observes it. */
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
    { target, request: { isStream, asksForUsage } }: { readonly target: Target; readonly request: ForwardableRequest },
  ): Promise<string> {
    if (!isStream || asksForUsage || !(await upstream.capabilities.supports("stream_options", target.name))) return body;
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
    const ofBase = (name: string) => ({ base: name, contextLength: upstream.contextLengthOf(name) });
    if (base !== undefined) return { name: base, resolvedName: id, ...ofBase(id), adapter: null };
    // The local route rejects unknown names.
    const found = await this.#find(id, [], visibility).catch(() => null);
    const name = found === null ? undefined : upstream.baseModels.get(found.model.base_model);
    if (found === null || name === undefined) return null;
    const { model: row, checkpoint } = found;
    const shared = { resolvedName: resolvedNameOf(id, found), ...ofBase(row.base_model) };
    // Step 0 is the base model itself: a new adapter changes nothing.
    if (checkpoint.state_dir === null) return { name, ...shared, adapter: null };
    if (upstream.options.adapters !== true || row.lora === null) return null;
    return { name: `whetstone-${checkpoint.id}`, ...shared, adapter: found };
  }

  /** Starts the use of a model on a server. The files of an adapter exist as long as its use, because the server may read them at any time. */
  async #use({ adapters }: PooledServer, { adapter, name, resolvedName }: Target): Promise<Use> {
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

  /** Returns the body with the upstream's names; every other byte is unchanged, so that numbers keep all their digits. */
  async #bodyFor(
    { upstream: { capabilities } }: PooledServer,
    { name }: Target,
    { body, call: { request, principal } }: { readonly body: string; readonly call: ForwardCall },
  ): Promise<string> {
    const { fields, unknownFields } = request;
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
    return salted(forwarded, principal, () => capabilities.supports("cache_salt", name));
  }

  /** Converts an error of the upstream into a response: client errors with the upstream's message, all others without details. */
  async #refusal(
    answer: UpstreamAnswer,
    { target: { name }, use, scope }: { readonly target: Target; readonly use: Use; readonly scope: RequestScope },
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

/** Returns the members of a JSON object; null for anything else. */
function membersOf(body: string): Members | null {
  const value = parseJson(body);
  return isRecord(value) ? value : null;
}
