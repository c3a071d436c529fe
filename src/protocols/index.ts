/** Environment protocols: environments of OpenEnv and Open Reward Standard servers, and servers for own environments. */
export type { EnvironmentAgentOptions } from "./agent-options.ts";
export { EnvironmentError } from "./errors.ts";
export { openEnvEnvironment } from "./openenv/environment.ts";
export type { OpenEnvEnvironmentOptions } from "./openenv/environment.ts";
export { connectOpenEnv, OpenEnvSession } from "./openenv/session.ts";
export type { OpenEnvOptions, OpenEnvStep } from "./openenv/session.ts";
export { orsEnvironment } from "./ors/environment.ts";
export type { OrsEnvironmentOptions } from "./ors/environment.ts";
export type { OrsTask } from "./ors/session.ts";
