import type { FollowJob } from "../client/index.ts";
import { pollJob } from "./poll-job.ts";
import { iterate } from "./rx.ts";

/** {@link pollJob} for those who use no RxJS: the client's port. */
export const followJob: FollowJob = (service, jobId, options) => iterate(pollJob(service, jobId, options));
