/** Composition of a service: the parts that its routes and jobs share. `start.ts` opens the inputs, `app.ts` serves the result. */
import type { Engine } from "../engine/port.ts";
import { ConfigError } from "../base/errors.ts";
import { late } from "../base/util/late.ts";
import { Holds } from "../base/util/leases.ts";
import { BaseModels } from "./models/base-models.ts";
import { Retention } from "./checkpoints/retention.ts";
import type { ServiceContext } from "./routes/context.ts";
import type { DataDirectory } from "./disk/data-directory.ts";
import type { DiskSpace } from "./disk/space.ts";
import type { Hub } from "./hub/hub.ts";
import { Changes } from "./jobs/changes.ts";
import type { JobChats } from "./jobs/job-chat.ts";
import { JobLeases } from "./jobs/leases.ts";
import { ApiKeys } from "./keys/api-keys.ts";
import { Quotas } from "./quotas/quotas.ts";
import { JobQueue } from "./jobs/queue.ts";
import { WarmModels } from "./jobs/warm-models.ts";
import type { ServiceLimits } from "./common/limits.ts";
import type { ServiceLogger } from "./common/logger.ts";
import type { ServiceObserver } from "./observability/observer.ts";
import { Policies } from "./models/policies.ts";
import { StoredSessions } from "./sessions/sessions.ts";
import { SHIPPED_BASE } from "./models/shipped-base.ts";
import { createRolloutTasks } from "./rollout-tasks/rollout-tasks.ts";
import type { Store } from "./store/tables.ts";
import type { Storage } from "./storage/storage.ts";
import { StoredFiles } from "./stored-files/stored-files.ts";
import { createWork } from "./create-work.ts";

/** Creates the parts of a service that routes and jobs share. @throws ConfigError `E_CONFIG` for an engine without base models. */
export function createContext(parts: {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly storage: Storage;
  readonly engine: Engine;
  readonly upstream: ServiceContext["upstream"];
  readonly hub: Hub | null;
  /** Base models of the service's options. */
  readonly baseModels: Readonly<Record<string, string>>;
  readonly blobs: ServiceContext["blobs"];
  readonly logger: ServiceLogger;
  readonly limits: ServiceLimits;
  readonly space: DiskSpace;
  readonly observer: ServiceObserver;
}): ServiceContext {
  const { store, directory, storage, engine, upstream, hub, baseModels, blobs, logger, limits, space, observer } = parts;
  const [firstBase] = engine.capabilities().baseModels;
  if (firstBase === undefined) throw new ConfigError("Expected the engine to have at least one base model", { param: "engine" });
  const defaultBase = engine.capabilities().baseModels.includes(SHIPPED_BASE) ? SHIPPED_BASE : firstBase;
  const files = new StoredFiles({ store, directory, storage, logger });
  const work = createWork();
  const { tokenizers } = work;
  const bases = new BaseModels({ engine, hub, tokenizers, sources: baseModels });
  const policies = new Policies({ store, engine, files, bases, defaultBase, maxIdle: limits.maxIdlePolicies, logger });
  const uses = new Holds<string>();
  const retention = new Retention({ store, directory, storage, policies, uses, limits, logger, space });
  const warm = new WarmModels({ engine, files, logger, max: limits.maxWarmModels });
  // `createApp` provides the value, because the chat of jobs is made of the pipelines of the routes.
  const jobChat = late<JobChats>();
  const shared = { store, directory, storage, engine, policies, retention, space, blobs, files, limits, logger, observer };
  const jobs = new JobQueue({
    ...shared,
    warm,
    data: work.data,
    graders: work.graders,
    changes: new Changes(),
    leases: new JobLeases({ store, leaseMs: limits.jobLeaseMs, logger }),
    chat: jobChat.value,
  });
  return {
    ...shared,
    bases,
    upstream,
    defaultBase,
    uses,
    jobs,
    jobChat,
    keys: new ApiKeys(store),
    quotas: new Quotas(store),
    sessions: new StoredSessions(store),
    rollouts: createRolloutTasks({ store, blobs, logger, space }),
    tokenizers,
    work,
  };
}
