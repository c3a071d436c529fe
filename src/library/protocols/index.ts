/** Environment protocols: environments of OpenEnv and Open Reward Standard servers, and servers for own environments. */
export type { EnvironmentAgentOptions } from "./episode/client-options.ts";
export { EnvironmentError } from "./episode/errors.ts";
export type { EnvironmentServer, ServeOptions } from "./episode/server.ts";
export { defineToolEnvironment, type Episode, type ToolEnvironment, type ToolEnvironmentDefinition } from "./episode/tool-environment.ts";
export { openEnvEnvironment, type OpenEnvEnvironmentOptions } from "./openenv/environment.ts";
export { serveOpenEnv } from "./openenv/server.ts";
export { connectOpenEnv, OpenEnvSession, type OpenEnvOptions, type OpenEnvStep } from "./openenv/session.ts";
export { orsEnvironment, type OrsEnvironmentOptions } from "./ors/environment.ts";
export type { OrsTask } from "./ors/session.ts";
export { serveOrs, type ServeOrsOptions } from "./ors/server.ts";
