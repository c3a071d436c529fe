import { connectWith, type ConnectOptions, type FollowJob, type Service } from "../client/index.ts";
import { pollJob } from "./poll-job.ts";
import { iterate } from "./rx.ts";

/** The RxJS follower as the client's port. */
export const followJob: FollowJob = (service, jobId, options) => iterate(pollJob(service, jobId, options));

/**
 * Connects to a service: the one at `baseUrl` or `WHETSTONE_BASE_URL`, else the embedded one of the data directory, which is
 * started if it is not running.
 *
 * @throws ConfigError `E_CONFIG` for an address that is none, or an address without a key.
 * @example
 * ```ts
 * const service = await connect();
 * const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "whetstone-tiny", returnExisting: true });
 * ```
 */
export function connect(options: ConnectOptions = {}): Promise<Service> {
  return connectWith(followJob, options);
}
