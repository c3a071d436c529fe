/** Environment protocols: environments of OpenEnv and Open Reward Standard servers, and servers for own environments. */
export type { EnvironmentAgentOptions } from "./episode/agent-options.ts";
export { EnvironmentError } from "./episode/errors.ts";
export type { EnvironmentServer, ServeOptions } from "./episode/server.ts";
export { defineToolEnvironment } from "./episode/tool-environment.ts";
export type { Episode, ToolEnvironment, ToolEnvironmentDefinition } from "./episode/tool-environment.ts";
export { openEnvEnvironment } from "./openenv/environment.ts";
export type { OpenEnvEnvironmentOptions } from "./openenv/environment.ts";
export { serveOpenEnv } from "./openenv/server.ts";
export { connectOpenEnv, OpenEnvSession } from "./openenv/session.ts";
export type { OpenEnvOptions, OpenEnvStep } from "./openenv/session.ts";
export { orsEnvironment } from "./ors/environment.ts";
export type { OrsEnvironmentOptions } from "./ors/environment.ts";
export type { OrsTask } from "./ors/session.ts";
export { serveOrs } from "./ors/server.ts";
export type { ServeOrsOptions } from "./ors/server.ts";
