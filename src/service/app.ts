/**
 * HTTP application of the service. `createApp` registers the middleware in the order in which it handles a request, then the routes, then the
 * answers to errors and to requests without a route.
 */
import { Hono, type MiddlewareHandler } from "hono";
import type { Dashboard } from "../lab/dashboard/index.ts";
import { ForbiddenError, NotFoundError } from "../base/errors.ts";
import { auditRequests } from "./audit.ts";
import { requireKey } from "./http/auth.ts";
import { callerOf } from "./http/caller.ts";
import { isAdministrator, servicePrincipal, type Principal } from "./http/principal.ts";
import { BodyBudget, budgetBodies } from "./http/body-budget.ts";
import { limitBody, maxBytesOf, type ServiceEnvironment } from "./http/body.ts";
import { ChatForwarder } from "./chat/forward/forward.ts";
import { forwardingPipeline } from "./chat/forwarding.ts";
import type { ChatLimits } from "./chat/generate/admit.ts";
import type { ChatPipeline } from "./chat/pipeline.ts";
import { ChatService } from "./chat/service.ts";
import { jobChat } from "./dialects/job-chat.ts";
import { messagesErrors } from "./dialects/messages-errors.ts";
import { chatRoutes } from "./routes/chat.ts";
import type { TimeSlices } from "../base/util/time-slices.ts";
import { sessionPermissions } from "./sessions/permissions.ts";
import { sessionPipeline } from "./sessions/pipeline.ts";
import { routeContext, type ServiceContext } from "./routes/context.ts";
import type { ServiceMetrics } from "./observability/metrics.ts";
import type { RequestRecord } from "./observability/observer.ts";
import { errorResponse, toErrorResponse } from "./http/errors.ts";
import { requestIdOf } from "./http/request-id.ts";
import { matchedPattern, register, type Route } from "./openapi/route.ts";
import { artifactRoutes } from "./routes/artifacts.ts";
import { auditLogRoutes } from "./routes/audit-log.ts";
import { checkpointRoutes } from "./routes/checkpoints.ts";
import { descriptionRoutes } from "./routes/description.ts";
import { entityRoutes } from "./routes/entities.ts";
import { fileRoutes } from "./routes/files.ts";
import { fineTuningRoutes } from "./routes/fine-tuning.ts";
import { graderRoutes } from "./routes/graders.ts";
import { healthRoutes } from "./routes/health.ts";
import { keyRoutes } from "./routes/keys.ts";
import { metricsRoutes } from "./routes/metrics.ts";
import { modelRoutes } from "./routes/models.ts";
import { readyRoutes } from "./routes/ready.ts";
import { responsesRoutes } from "./routes/responses.ts";
import { rolloutRoutes } from "./routes/rollouts.ts";
import { sessionRoutes } from "./routes/sessions.ts";
import { servedModelRoutes } from "./routes/served-models.ts";
import { trainingJobRoutes } from "./routes/training-jobs.ts";
import { upstreamRoutes } from "./routes/upstreams.ts";

/** Options of {@link createApp}. */
export interface AppOptions {
  readonly apiKey: string;
  readonly dashboard: Dashboard;
  readonly chatLimits?: ChatLimits | undefined;
  /** Time slices of the event loop that chat requests share with the HTTP server. */
  readonly slices: TimeSlices;
  /** Signal that aborts when the service cuts off the requests that are still running. */
  readonly signal: AbortSignal;
  /** Metrics of the service; null if they are off. */
  readonly metrics: ServiceMetrics | null;
  /** Whether requests are recorded in the audit log. */
  readonly auditLog: boolean;
}

/** Creates the HTTP application: all routes with API keys, body limits and error format. */
export function createApp(
  context: ServiceContext,
  { apiKey, dashboard, chatLimits, signal, slices, metrics, auditLog }: AppOptions,
): Hono<ServiceEnvironment> {
  const app = new Hono<ServiceEnvironment>();
  const pipelines = createPipelines(context, { chatLimits, signal, slices });
  // The job queue is created before the app, and waits for this value before it runs a job that samples.
  context.jobChat.provide(jobChat({ ...pipelines, translator: context.work.translator }));
  const routes = createRoutes(context, { chat: pipelines.pipeline, slices, metrics, auditLog });
  const { requestAnswered } = context.observer;
  if (requestAnswered !== undefined) app.use(reportRequests(requestAnswered));
  app.use(cancelUnread);
  app.use(messagesErrors);
  answerOptions(app);
  app.use("/", redirectBrowsers);
  app.use(authentication(context, routes, { apiKey, dashboard }));
  app.use("/ui/*", administratorsOnly);
  if (auditLog) app.use(auditRequests(context, routes));
  useBodyLimits(app, context.limits);
  register(app, routes);
  app.route("/", dashboard.app);
  answerFailures(app, context.logger);
  return app;
}

/**
 * Answers OPTIONS with the methods of the path. Needs no key, because it describes the route without running it. There are no CORS headers: a
 * page of another origin gets no access.
 */
function answerOptions(app: Hono<ServiceEnvironment>): void {
  app.options("*", (c) => {
    const allowed = allowedMethods(app, c.req.path);
    return allowed.length === 0 ? c.notFound() : c.body(null, 204, { Allow: allowed.join(", ") });
  });
}

/** Creates the middleware that finds the principal of each request by its key. */
function authentication(
  context: ServiceContext,
  routes: readonly Route[],
  { apiKey, dashboard }: Pick<AppOptions, "apiKey" | "dashboard">,
): MiddlewareHandler<ServiceEnvironment> {
  // Public paths need no key for any method, so that an unsupported method yields 405 with and without a key.
  const publicPaths = new Set(routes.filter(({ access }) => access === "public").map(({ path }) => path));
  return requireKey({
    apiKey,
    service: servicePrincipal(apiKey),
    open: (path) => publicPaths.has(path) || dashboard.isPublic(path),
    keys: [sessionPermissions(routes, context.sessions.known), (_c, key) => context.keys.authenticate(key)],
    chargedFor: (key) => context.quotas.chargedFor(key),
    dashboardSession: (c) => (dashboard.requiresKey(c.req.path) ? null : dashboard.checkSession(c)),
  });
}

/** Limits each body, and the bytes of all bodies in memory. Uploads are excepted: they are streamed to disk. */
function useBodyLimits(app: Hono<ServiceEnvironment>, { maxBodyBytes, maxBodiesBytes }: ServiceContext["limits"]): void {
  const maxBytes = (path: string) => maxBytesOf(path, maxBodyBytes);
  app.use(exceptUploads(limitBody(maxBytes)));
  app.use(exceptUploads(budgetBodies(new BodyBudget(maxBodiesBytes), maxBytes)));
}

/** Returns a middleware that is skipped for uploads of files. */
function exceptUploads(middleware: MiddlewareHandler<ServiceEnvironment>): MiddlewareHandler<ServiceEnvironment> {
  return (c, next) => (isUpload(c.req.method, c.req.path) ? next() : middleware(c, next));
}

/** Whether the request uploads a file. Uploads have their own, much larger limit, enforced while the file is written. */
function isUpload(method: string, path: string): boolean {
  return (method === "PUT" && path.startsWith("/v1/preview/artifacts/")) || (method === "POST" && path === "/v1/files");
}

/** Answers errors of routes, unknown paths (404), and methods that a path does not support (405). */
function answerFailures(app: Hono<ServiceEnvironment>, logger: ServiceContext["logger"]): void {
  app.onError((error, c) => toErrorResponse(error, { path: c.req.path, request: requestIdOf(c.env.incoming), logger }));
  app.notFound((c) => {
    const { method, path } = c.req;
    const allowed = method === "OPTIONS" ? [] : allowedMethods(app, path);
    const request = requestIdOf(c.env.incoming);
    if (allowed.length === 0) return toErrorResponse(new NotFoundError(`There is no route ${method} ${path}`), { path, request, logger });
    const message = `${path} does not take ${method}; it takes ${allowed.join(", ")}`;
    return errorResponse(405, { message, code: "E_METHOD", headers: { Allow: allowed.join(", ") } });
  });
}

/** Methods of routes. */
const METHODS = ["GET", "POST", "PUT", "DELETE"] as const;

/** Returns the methods of a path, as in the header `Allow`; empty for an unknown path. */
function allowedMethods({ router }: Hono<ServiceEnvironment>, path: string): string[] {
  const methods = METHODS.filter((method) => {
    // Each match is a handler with its route. The route of a middleware has the method ALL.
    const [matches] = router.match(method, path);
    return matches.some(([[, route]]) => route.method === method);
  });
  if (methods.length === 0) return [];
  // Every GET route also answers HEAD.
  return [...methods.flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : [method])), "OPTIONS"];
}

/** Creates the middleware that reports each answered request. */
function reportRequests(report: (record: RequestRecord) => void): MiddlewareHandler<ServiceEnvironment> {
  return async function reportRequestsMiddleware(c, next) {
    const startedMs = performance.now();
    await next();
    report({
      id: requestIdOf(c.env.incoming),
      method: c.req.method,
      path: new URL(c.req.url).pathname,
      route: matchedPattern(c) ?? "unmatched",
      entity: callerOf(c).entity,
      status: c.res.status,
      durationMs: performance.now() - startedMs,
    });
  };
}

/** Cancels the body of a response to HEAD, which releases the files and leases that a GET would have streamed from. */
const cancelUnread: MiddlewareHandler<ServiceEnvironment> = async (c, next) => {
  await next();
  if (c.req.method === "HEAD") await c.res.body?.cancel();
};

/** Pipelines of chat completions. */
interface Pipelines {
  /** Pipeline that answers the requests of all dialects. */
  readonly pipeline: ChatPipeline;
  /** Pipeline that samples with the engine alone. */
  readonly local: ChatPipeline;
}

/** Creates the pipelines of chat completions. */
function createPipelines(
  context: ServiceContext,
  { chatLimits, signal, slices }: Pick<AppOptions, "chatLimits" | "signal" | "slices">,
): Pipelines {
  const { policies, engine, tokenizers, work, logger, upstream, store, files, directory, defaultBase, observer } = context;
  const chat = new ChatService({ policies, engine, tokenizers, work: work.chat, limits: chatLimits, logger, signal, slices, observer });
  let sampling: ChatPipeline = chat;
  if (upstream !== null) {
    const forwarder = new ChatForwarder({ upstream, store, files, root: directory.root, defaultBase, logger, signal, observer });
    sampling = forwardingPipeline(chat, forwarder);
  }
  return { pipeline: sessionPipeline(sampling, context.sessions), local: chat };
}

/** Creates the complete route table. Every route is also part of the OpenAPI document. */
function createRoutes(
  context: ServiceContext,
  { chat, slices, metrics, auditLog }: { readonly chat: ChatPipeline } & Pick<AppOptions, "slices" | "metrics" | "auditLog">,
): Route[] {
  const shared = routeContext(context);
  const dialects = { pipeline: chat, translator: context.work.translator, slices };
  const routes = [
    ...chatRoutes(dialects),
    ...responsesRoutes(dialects, context.sessions),
    ...sessionRoutes(shared),
    ...rolloutRoutes(shared),
    ...servedModelRoutes(shared),
    ...modelRoutes(shared),
    ...checkpointRoutes(shared),
    ...trainingJobRoutes(shared),
    ...artifactRoutes(shared),
    ...fileRoutes(shared),
    ...fineTuningRoutes(shared),
    ...keyRoutes(shared),
    ...entityRoutes(shared),
    ...upstreamRoutes(shared),
    ...graderRoutes(dialects, context.work),
    ...healthRoutes(context),
    ...readyRoutes(context),
    ...metricsRoutes(metrics),
    ...auditLogRoutes(context.store, auditLog),
  ];
  return [...routes, ...descriptionRoutes(routes)];
}

/** Redirects a browser from the service's address to the dashboard. Other clients get the answer of an unknown route. */
const redirectBrowsers: MiddlewareHandler = async (c, next) => {
  if (c.req.method === "GET" && c.req.header("accept")?.includes("text/html") === true) return c.redirect("/ui/");
  return next();
};

/** Rejects keys of one entity: the dashboard reads run directories of the machine, which belong to no entity. */
const administratorsOnly: MiddlewareHandler<ServiceEnvironment> = async (c, next) => {
  const principal = c.get("principal") as Principal | undefined;
  if (principal !== undefined && !isAdministrator(principal))
    throw new ForbiddenError(
      "The dashboard shows run directories of the service's machine: it needs the service's own key, or the key of an administrator of all entities",
    );
  return next();
};
