/** Environment protocols: environments of OpenEnv and Open Reward Standard servers, and servers for own environments. */
export { EnvironmentError } from "./errors.ts";
export { openEnvEnvironment } from "./openenv/environment.ts";
export type { EnvironmentAgentOptions, OpenEnvEnvironmentOptions } from "./openenv/environment.ts";
export { connectOpenEnv, OpenEnvSession } from "./openenv/session.ts";
export type { OpenEnvOptions, OpenEnvStep } from "./openenv/session.ts";
