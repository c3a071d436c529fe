import type { Engine } from "../engine/port.ts";
import type { Upstream } from "../engine/upstream/upstream.ts";
import type { BaseModels } from "./base-models.ts";
import type { BlobStore } from "./artifacts/blob-store.ts";
import type { Retention } from "./checkpoints/retention.ts";
import type { Holds } from "../util/leases.ts";
import type { DataDirectory } from "./data-directory.ts";
import type { DiskSpace } from "./disk/space.ts";
import type { JobQueue } from "./jobs/queue.ts";
import type { TokenizerSource } from "./training-data/tokenizers.ts";
import type { ServiceLimits } from "./limits.ts";
import type { ServiceLogger } from "./logger.ts";
import type { Policies } from "./policies.ts";
import type { StoredFiles } from "./stored-files/stored-files.ts";
import type { Sessions } from "./sessions/sessions.ts";
import type { Store } from "./store/tables.ts";
import type { RequestWork } from "./work/request-work.ts";

/** Dependencies shared by routes and jobs. */
export interface ServiceContext {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly engine: Engine;
  readonly bases: BaseModels;
  /** External server that samples some base models instead of the engine, or null. */
  readonly upstream: Upstream | null;
  /** Identifier of the base model used when a request names no model. */
  readonly defaultBase: string;
  readonly policies: Policies;
  /** Checkpoints whose files are being read. */
  readonly uses: Holds<string>;
  readonly retention: Retention;
  readonly space: DiskSpace;
  readonly jobs: JobQueue;
  readonly sessions: Sessions;
  readonly blobs: BlobStore;
  readonly files: StoredFiles;
  readonly tokenizers: TokenizerSource;
  readonly work: RequestWork;
  readonly limits: ServiceLimits;
  readonly logger: ServiceLogger;
}
