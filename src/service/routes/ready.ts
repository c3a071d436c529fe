/** The route of readiness, for load balancers and orchestrators. */
import { access, constants } from "node:fs/promises";
import { setTimeout } from "node:timers/promises";
import { z } from "zod";
import { errorBody, readyReport, type ReadyReport } from "../../base/schema/index.ts";
import { messageOf } from "../../base/util/values.ts";
import { isAuthenticated } from "../http/caller.ts";
import type { Route } from "../openapi/route.ts";
import type { ServiceContext } from "./context.ts";
import { LOW_SPACE, samplingStatus } from "./health.ts";

type Parts = NonNullable<ReadyReport["parts"]>;
type Part = Parts["database"];

const OK: Part = { status: "ok", message: null };

/** Returns `ok` if the check resolves, else `unavailable` with its error. */
async function partOf(check: Promise<unknown>): Promise<Part> {
  try {
    await check;
    return OK;
  } catch (error) {
    return { status: "unavailable", message: messageOf(error) };
  }
}

/** Max milliseconds that the storage may take to answer. */
const STORAGE_TIMEOUT_MS = 5000;

/** Rejects if the storage outside of the data directory does not answer, or the directory of checkpoints cannot be written. */
async function checkStorage({ storage, directory }: Pick<ServiceContext, "storage" | "directory">): Promise<void> {
  await access(directory.checkpoints, constants.R_OK | constants.W_OK);
  if (storage.remote === null) return;
  const timeout = setTimeout(STORAGE_TIMEOUT_MS, undefined, { ref: false }).then(() =>
    Promise.reject(new Error(`No answer within ${STORAGE_TIMEOUT_MS / 1000} s`)),
  );
  await Promise.race([storage.remote.readMark(), timeout]);
}

/** Returns the state of sampling. */
function engineState({ engine, upstream }: Pick<ServiceContext, "engine" | "upstream">): Part {
  const workers = engine.workers?.() ?? [];
  const status = samplingStatus(workers, { hasUpstream: upstream !== null });
  const restarting = workers.filter(({ state }) => state !== "running").map(({ name }) => name);
  return status === "ok" ? OK : { status, message: `Restarting: ${restarting.join(", ")}` };
}

/** Creates `GET /ready`: whether the parts of the service work. Without the service's own key, only the status. */
export function readyRoutes(context: Pick<ServiceContext, "engine" | "upstream" | "store" | "storage" | "directory" | "space">): Route[] {
  const { store, space } = context;
  const readParts = async (): Promise<Parts> => ({
    engine: engineState(context),
    database: await partOf(store.selectFrom("models").select("id").limit(1).execute()),
    storage: await partOf(checkStorage(context)),
    disk: (await space.isLow()) ? { status: "degraded", message: LOW_SPACE.message } : OK,
  });
  return [
    {
      method: "GET",
      path: "/ready",
      id: "getReadiness",
      tag: "Service",
      access: "public",
      isExtension: true,
      summary: "Read whether the service can take requests",
      description: "With the service's own key, the answer has the states of the parts.",
      answer: readyReport,
      // An error body during shutdown.
      otherAnswers: { 503: z.union([readyReport, errorBody]) },
      async handle(c) {
        const parts = await readParts();
        const isReady = Object.values(parts).every(({ status }) => status !== "unavailable");
        const report: ReadyReport = { status: isReady ? "ready" : "unavailable", ...(isAuthenticated(c) ? { parts } : {}) };
        return c.json(report, isReady ? 200 : 503, isReady ? {} : { "Retry-After": "1" });
      },
    },
  ];
}
