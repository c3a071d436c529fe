import type { FollowJob } from "../client/index.ts";
import { pollJob } from "./poll-job.ts";
import { iterate } from "./rx.ts";

/** Follows a job like {@link pollJob}, as an AsyncIterable instead of an Observable; implements the client's port. */
export const followJob: FollowJob = (service, jobId, options) => iterate(pollJob(service, jobId, options));
