/** Dependencies of routes and jobs, and their restriction to the rows that the caller of a request may see. */
import type { Engine } from "../../engine/port.ts";
import type { UpstreamPool } from "../../engine/upstream/pool.ts";
import type { BaseModels } from "../models/base-models.ts";
import type { BlobStore } from "../artifacts/blob-store.ts";
import type { Retention } from "../checkpoints/retention.ts";
import type { Late } from "../../base/util/late.ts";
import type { Holds } from "../../base/util/leases.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import type { DiskSpace } from "../disk/space.ts";
import type { ApiKeys } from "../keys/api-keys.ts";
import type { JobChats } from "../jobs/job-chat.ts";
import type { JobQueue } from "../jobs/queue.ts";
import type { Quotas } from "../quotas/quotas.ts";
import type { TokenizerSource } from "../models/tokenizers.ts";
import type { ServiceLimits } from "../common/limits.ts";
import type { ServiceLogger } from "../common/logger.ts";
import type { ServiceObserver } from "../observability/observer.ts";
import type { Policies } from "../models/policies.ts";
import type { Storage } from "../storage/storage.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { RolloutTasks } from "../rollout-tasks/rollout-tasks.ts";
import type { StoredSessions } from "../sessions/sessions.ts";
import type { Store } from "../store/tables.ts";
import { visibleIn } from "../store/visibility.ts";
import type { ChatWork } from "../chat/work.ts";
import type { Translator } from "../dialects/translator.ts";
import type { GraderWork } from "../grading/grader-work.ts";
import type { BodyReader } from "../http/body-reader.ts";
import type { ServiceRequest } from "../http/body.ts";
import { principalOf } from "../http/principal.ts";
import type { DataWork } from "../training-data/data-work.ts";

/** Processing of requests and training data: small inputs on the serving thread, large ones on a work thread. */
export interface ServiceWork {
  /** Tokenizers of the serving thread. */
  readonly tokenizers: TokenizerSource;
  readonly bodies: BodyReader;
  readonly chat: ChatWork;
  readonly translator: Translator;
  readonly data: DataWork;
  readonly graders: GraderWork;
  /** Terminates all threads. Work in progress fails. */
  close(): Promise<void>;
}

/** Dependencies shared by routes and jobs. */
export interface ServiceContext {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly storage: Storage;
  readonly engine: Engine;
  readonly bases: BaseModels;
  /** External servers that sample some base models instead of the engine, or null. */
  readonly upstream: UpstreamPool | null;
  /** Identifier of the base model used when a request names no model. */
  readonly defaultBase: string;
  readonly policies: Policies;
  /** Checkpoints with files that are being read, by id. */
  readonly uses: Holds<string>;
  readonly retention: Retention;
  readonly space: DiskSpace;
  readonly jobs: JobQueue;
  /** Chat of training jobs, which exists once the app is created. */
  readonly jobChat: Late<JobChats>;
  readonly keys: ApiKeys;
  readonly quotas: Quotas;
  readonly sessions: StoredSessions;
  readonly rollouts: RolloutTasks;
  readonly blobs: BlobStore;
  readonly files: StoredFiles;
  readonly tokenizers: TokenizerSource;
  readonly work: ServiceWork;
  readonly limits: ServiceLimits;
  readonly logger: ServiceLogger;
  readonly observer: ServiceObserver;
}

/**
 * Dependencies of the routes. The store of a request finds only the rows that its caller may see, so routes have no store of their own.
 */
export interface RouteContext extends Omit<ServiceContext, "store"> {
  /** Returns the dependencies of a request, with its store. */
  readonly of: (c: ServiceRequest) => ServiceContext;
}

/** Creates the dependencies of the routes. For a caller that sees all rows, a request has the dependencies of the service itself. */
export function routeContext(context: ServiceContext): RouteContext {
  const { store, ...shared } = context;
  return {
    ...shared,
    of(c) {
      const visible = visibleIn(store, principalOf(c).visibility);
      return visible === store ? context : { ...context, store: visible };
    },
  };
}
