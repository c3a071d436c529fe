/** The service: the complete HTTP interface, embedded in a process or run by `whetstone serve`. */
export { startService } from "./start.ts";
export type { RunningService } from "./start.ts";
export type { ServiceOptions } from "./options.ts";
export type { OperationOptions, TlsFiles } from "./operation-options.ts";
export type { HubOptions } from "./hub/hub.ts";
export type { ChatLimits } from "./chat/generate/admit.ts";
export type { RequestRecord } from "./observability/observer.ts";
export type { ServiceLimits } from "./common/limits.ts";
export { jsonLogger } from "./common/logger.ts";
export type { ServiceLogger } from "./common/logger.ts";
export type { UpstreamOptions } from "../engine/upstream/upstream.ts";
