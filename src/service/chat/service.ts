/**
 * Chat completion service: the steps of a request in order, and the release of its resources. `complete` leases the model and renders the
 * prompt (`#open`), checks the sampling parameters (`#prepare`), generates the choices (`generateRun`), and parses and remembers each one
 * (`concludeChoice`).
 */
import { randomHex } from "../../base/util/random-hex.ts";
import { loadingBase } from "../../engine/base-failure.ts";
import type { BaseModelInfo, Engine } from "../../engine/port.ts";
import type { ChatTokenizer } from "../../text/tokenizer/index.ts";
import { Lru, remember } from "../../base/util/lru.ts";
import { newGroup } from "../../base/util/request-group.ts";
import type { TimeSlices } from "../../base/util/time-slices.ts";
import type { ServiceLogger } from "../common/logger.ts";
import type { ChatObserver, RequestScope, ServiceObserver } from "../observability/observer.ts";
import type { PolicyResolver } from "../models/policies.ts";
import type { ChatWork } from "./work.ts";
import {
  checkRequestCounts,
  checkTemplate,
  checkToolParser,
  resolveLimits,
  resolveSampling,
  type ChatLimits,
  type ResolvedChatLimits,
} from "./generate/admit.ts";
import { DEFAULT_ENTITY } from "../common/names.ts";
import { cacheNamespace, type Principal } from "../http/principal.ts";
import { cacheSaltOf, requireCacheSalts } from "./request/cache-salt.ts";
import { clientGone } from "./request/client-signal.ts";
import { explainFailure } from "./request/errors.ts";
import type { GenerateOptions, GeneratedChoice } from "./generate/generate.ts";
import { readGenerationDefaults, type GenerationDefaults } from "../models/generation-defaults.ts";
import { toWirePrompt } from "./generate/logprobs.ts";
import { truncatedLength, truncatePrompt } from "./prompt/length.ts";
import { echoedText, responseRole } from "./request/prompt-request.ts";
import { RecentPrompts } from "./prompt/recent-prompts.ts";
import { hasEndedReasoning } from "./text/reasoning.ts";
import { promptEncoder } from "./prompt/prompt-encoder.ts";
import { encodeRawPrompt } from "./prompt/raw-prompt.ts";
import { renderPrompt, terminatorsOf } from "./prompt/render.ts";
import { observeChat } from "../quotas/observe-chat.ts";
import { admittedChat, startedChat } from "./observed.ts";
import { generateRun, type ChatRun, type OpenedPrompt } from "./run.ts";
import { forcedCallsOf, type ChatRequest } from "./request/request.ts";
import { SampledIdsByPrincipal } from "./prompt/sampled-ids.ts";
import { constraintOf } from "./generate/constraint.ts";
import { OutputGrammars } from "./generate/output-grammar.ts";
import type { ChoiceMessage } from "./answer/shape.ts";
import { concludeChoice } from "./conclude.ts";
import { chunkStream } from "./answer/chunk-source.ts";
import { CompletionStream } from "./answer/stream.ts";
import type { ChatAnswer, ChatCall, ChatPipeline, RenderCall, RenderedCall } from "./pipeline.ts";
import type { ChatReadOptions } from "./request/opened-chat.ts";
import { wholeAnswer } from "./answer/whole-answer.ts";
import { RunningRequests, type HeldResources } from "./held-resources.ts";
import { IgnoredParts } from "./request/ignored-fields.ts";
import { first } from "../../base/util/values.ts";

/** Dependencies of {@link ChatService}. */
export interface ChatDependencies {
  readonly policies: PolicyResolver;
  readonly engine: Engine;
  /** Returns the tokenizer of a model directory. Called for each request, so implementations should cache. */
  readonly tokenizers: (directory: string) => Promise<ChatTokenizer>;
  readonly limits?: ChatLimits | undefined;
  /** Threads for large requests. */
  readonly work: ChatWork;
  /** @default no logging */
  readonly logger?: ServiceLogger | undefined;
  /** @default none */
  readonly observer?: ServiceObserver | undefined;
  /** Aborted when the service shuts down: running requests end with {@link ShutdownError}, streams with an error event. */
  readonly signal?: AbortSignal | undefined;
  /** Time slices of the event loop for calls that waited for the same model, and for the choices of a call. */
  readonly slices: TimeSlices;
}

/** Chat completion service. */
export class ChatService implements ChatPipeline {
  readonly #dependencies: ChatDependencies;
  readonly #limits: ResolvedChatLimits;
  /** Running requests, and the capacity that they use. */
  readonly #running: RunningRequests;
  /** Sampled ids of earlier turns, by principal. */
  readonly #sampledIds: SampledIdsByPrincipal;
  readonly #recentPrompts = new RecentPrompts();
  /** Logger of request parts that have no effect. */
  readonly #ignored: IgnoredParts;
  readonly #outputGrammars: OutputGrammars;
  readonly #work: ChatWork;
  readonly #slices: TimeSlices;
  /** Sampling defaults by model directory. */
  readonly #defaults = new Lru<string, Promise<GenerationDefaults>>();

  constructor(dependencies: ChatDependencies) {
    this.#dependencies = dependencies;
    this.#ignored = new IgnoredParts(dependencies.logger);
    this.#limits = resolveLimits(dependencies.limits);
    this.#slices = dependencies.slices;
    this.#work = dependencies.work;
    this.#outputGrammars = new OutputGrammars((...form) => this.#work.compileOutput(...form));
    this.#running = new RunningRequests(this.#limits.maxRunningChoices, dependencies.signal);
    this.#sampledIds = new SampledIdsByPrincipal(this.#limits.splicingBytesPerKey);
  }

  /** Checks that there is room for a choice. @throws OverloadedError `E_OVERLOADED` without. */
  requireRoom({ visibility }: Principal): void {
    this.#running.requireRoom(visibility.entity ?? DEFAULT_ENTITY);
  }

  /** Returns the options with which requests are read, the same for every principal. */
  readOptions(): Promise<ChatReadOptions> {
    return Promise.resolve({ needs: { parsesReasoning: this.#limits.reasoningParser !== "none" }, session: null, isForwardable: false });
  }

  /** Answers one request; see {@link ChatPipeline.complete}. */
  async complete(call: ChatCall): Promise<ChatAnswer> {
    this.#running.requireRoom(call.scope.entity);
    const request = this.#read(call, call.maxOutputTokens);
    checkRequestCounts(request, this.#limits);
    const resources = this.#running.enter(call.signal, request.n, call.scope.entity);
    const observer = resources.releaseIfFails(() => observeChat(this.#dependencies.observer, call.charged, startedChat(call, request)));
    let isStreaming = false;
    try {
      const run = await this.#prepare(call, request, { resources, observer });
      observer?.admitted(admittedChat(run));
      if (request.isStream) {
        isStreaming = true;
        return { kind: "stream", stream: chunkStream(this.#stream(run, resources, call.scope)) };
      }
      const choices = await generateRun(run, { signal: resources.controller.signal });
      const messages: ChoiceMessage[] = [];
      for (const choice of choices) messages.push(await this.#conclude(run, choice, call.scope));
      observer?.ended(null);
      const scored = first(choices).promptTokens;
      const promptLogprobs = scored === null ? null : toWirePrompt(run.tokenizer, scored);
      return { kind: "whole", answer: wholeAnswer(choices, messages, { ...run.shape, promptLogprobs }) };
    } catch (error) {
      observer?.ended(error);
      throw error;
    } finally {
      // A stream outlives this call and releases its resources when it ends.
      if (!isStreaming) resources.release();
    }
  }

  /** Renders and encodes the prompt of a request; see {@link ChatPipeline.render}. */
  async render(call: RenderCall): Promise<RenderedCall> {
    const request = this.#read(call);
    const resources = this.#running.enter(call.signal, 0, call.scope.entity);
    try {
      const { lease, tokenizer, prompt } = await this.#open(call, request, resources);
      return { ids: prompt.ids, contextLength: lease.base.contextLength, tokenizer };
    } finally {
      resources.release();
    }
  }

  /** Returns the request of a call. A larger limit of its output tokens is lowered to `maxOutputTokens`. */
  #read({ request: opened }: RenderCall, maxOutputTokens = Infinity): ChatRequest {
    const parsed = opened.read();
    const isLowered = parsed.maxTokens !== null && parsed.maxTokens > maxOutputTokens;
    const request = isLowered ? { ...parsed, maxTokens: maxOutputTokens } : parsed;
    this.#ignored.reportFields(request);
    return request;
  }

  /** Leases the model of a request and renders its prompt. The lease fixes the policy, and with it the step that the response names. */
  async #open(call: RenderCall, request: ChatRequest, resources: HeldResources): Promise<OpenedPrompt> {
    const { signal } = resources.controller;
    const { lease, tokenizer } = await this.#leaseModel(call, request, resources);
    const { base } = lease;
    signal.throwIfAborted();
    const { prompt: rawPrompt } = call.request;
    if (rawPrompt === undefined) {
      checkToolParser(request, this.#limits);
      checkTemplate(request, this.#limits);
    }
    const splice = {
      memory: this.#sampledIds.of(call.principal),
      scope: `${call.conversation ?? ""} ${lease.resolvedName.replace(/:step\d+$/, "")}`,
    };
    const length = truncatedLength(request, base.contextLength);
    const encoder = promptEncoder(this.#work, tokenizer, length, { base, signal });
    const fullPrompt =
      rawPrompt === undefined
        ? await renderPrompt(request, { recent: this.#recentPrompts, namespace: cacheNamespace(call.principal), splice, encoder })
        : await encodeRawPrompt(rawPrompt, request, encoder);
    signal.throwIfAborted();
    const prompt = truncatePrompt(fullPrompt, length);
    return { lease, tokenizer, splice, encoder, fullPrompt, prompt, isRaw: rawPrompt !== undefined };
  }

  /** Leases the policy of a request, which the release of `resources` ends, and loads its tokenizer. */
  #leaseModel(
    { principal, group }: RenderCall,
    { model }: ChatRequest,
    resources: HeldResources,
  ): Promise<Pick<OpenedPrompt, "lease" | "tokenizer">> {
    const { policies, tokenizers } = this.#dependencies;
    const resolve = async () => {
      const lease = await policies.resolvePolicy(model, principal.visibility, { signal: resources.controller.signal });
      resources.add(() => lease.release());
      return { lease, tokenizer: await loadingBase(lease.base.id, () => tokenizers(lease.base.directory)) };
    };
    // Requests for a model that is being loaded wait for it together; afterwards they continue in time slices.
    return this.#slices.after(resolve(), group);
  }

  /** Opens a request, and checks and completes its sampling parameters. */
  async #prepare(
    call: ChatCall,
    request: ChatRequest,
    { resources, observer }: { readonly resources: HeldResources; readonly observer: ChatObserver | null },
  ): Promise<ChatRun> {
    const { engine } = this.#dependencies;
    const { signal } = resources.controller;
    const opened = await this.#open(call, request, resources);
    const { lease, tokenizer, splice, encoder, fullPrompt, prompt, isRaw } = opened;
    const { base } = lease;
    const defaults = await this.#generationDefaults(base);
    signal.throwIfAborted();
    const sampling = resolveSampling(request, this.#limits, {
      base,
      tokenizer,
      promptTokens: prompt.ids.length,
      defaults,
      engineTopLogprobs: engine.capabilities().maxTopLogprobs,
      maxOutputTokens: call.maxOutputTokens,
    });
    const parsesReasoning = !isRaw && this.#limits.reasoningParser !== "none";
    const shouldParseReasoning = parsesReasoning && !hasEndedReasoning(fullPrompt.text, terminatorsOf(tokenizer));
    const cacheSalt = this.#cacheSaltOf(request, call.principal);
    const constraint = await constraintOf(request, {
      grammars: this.#outputGrammars,
      canConstrain: engine.capabilities().constraints === true,
      tokenizer,
      shouldParseReasoning,
      signal,
    });
    signal.throwIfAborted();
    const params = {
      ...sampling,
      ...(cacheSalt === null ? {} : { cacheSalt }),
      ...(constraint === null ? {} : { constraint: constraint.params }),
    };
    return {
      tokenizer,
      encoder,
      prompt,
      splice,
      check: constraint?.check ?? null,
      plan: {
        engine,
        observer,
        group: call.group ?? newGroup(call.scope.entity),
        policy: lease.policy,
        tokenizer,
        request,
        promptIds: prompt.ids,
        params,
        namesTokensById: request.namesTokensById ?? this.#limits.returnTokensAsTokenIds,
        // A vocabulary may encode tool calls with special tokens.
        keepsSpecialTokens: request.shouldParseToolCalls || !request.skipSpecialTokens,
      },
      shape: { ...this.#shapeOf(call, request, opened), shouldParseReasoning },
    };
  }

  /** Returns the options of the response that follow from the request and its model. */
  #shapeOf(call: ChatCall, request: ChatRequest, { lease, tokenizer, prompt, isRaw }: OpenedPrompt) {
    return {
      head: {
        id: `chatcmpl-${call.requestId ?? request.requestId ?? randomHex()}`,
        created: Math.floor(Date.now() / 1000),
        model: lease.resolvedName,
      },
      request,
      promptIds: prompt.ids,
      role: responseRole(request),
      echo: echoedText(request),
      reportsCachedTokens: this.#limits.reportCachedTokens,
      forcedCalls: forcedCallsOf(request),
      unusedTemplateKwargs: this.#ignored.reportKwargs(request, isRaw ? null : tokenizer),
    };
  }

  /** Returns the cache salt, which gives each entity a prefix cache of its own; null for a shared cache. */
  #cacheSaltOf({ cacheSalt: requested }: ChatRequest, principal: Principal): string | null {
    const salt = cacheSaltOf(requested, principal);
    // The engine must support a salt that the client has not requested, because it keeps the prompts of entities apart.
    if (salt !== requested) requireCacheSalts(this.#dependencies.engine);
    return salt;
  }

  /** Returns the sampling defaults of a base model. */
  #generationDefaults({ id, directory }: BaseModelInfo): Promise<GenerationDefaults> {
    return loadingBase(id, () => remember(this.#defaults, directory, () => readGenerationDefaults(directory)));
  }

  /** Concludes a finished choice in a time slice of the event loop; see {@link concludeChoice}. */
  async #conclude(run: ChatRun, choice: GeneratedChoice, scope: RequestScope): Promise<ChoiceMessage> {
    await this.#slices.enterToEnd(run.plan.group);
    return concludeChoice(run, choice, { work: this.#work, logger: this.#dependencies.logger, scope });
  }

  /** Starts the generation of a streamed answer. The stream releases the resources of the request when it ends. */
  #stream(run: ChatRun, resources: HeldResources, scope: RequestScope): CompletionStream {
    const { observer, request } = run.plan;
    const { usage, useBeamSearch } = request;
    const { signal } = resources.controller;
    const stream = new CompletionStream({
      ...run.shape,
      usage: usage === "none" && this.#limits.alwaysStreamUsage ? "final" : usage,
      onCancel: () => resources.controller.abort(clientGone()),
    });
    const options: GenerateOptions = {
      signal,
      // A choice is concluded before its end is shown, because the client may send its next turn at once.
      onChoice: async (choice) => {
        const { toolCalls } = await this.#conclude(run, choice, scope);
        stream.conclude(choice, toolCalls);
        if (useBeamSearch) stream.pushChoice(choice);
      },
      onToken: (token) => stream.push(token),
    };
    const fail = (error: unknown): void => {
      observer?.ended(error);
      stream.fail(this.explain(error, scope).body);
    };
    void generateRun(run, options)
      .then(() => observer?.ended(null), fail)
      .finally(() => resources.release());
    return stream;
  }

  /** Returns the response to a failure, and logs the error if the response omits its details. */
  explain(error: unknown, scope: RequestScope): ReturnType<typeof explainFailure> {
    return explainFailure(error, scope, this.#dependencies.logger);
  }
}
