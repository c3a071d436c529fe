import { access, constants } from "node:fs/promises";
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
async function checked(check: Promise<unknown>): Promise<Part> {
  try {
    await check;
    return OK;
  } catch (error) {
    return { status: "unavailable", message: messageOf(error) };
  }
}

/** Returns the state of sampling. */
function engineState({ engine, upstream }: Pick<ServiceContext, "engine" | "upstream">): Part {
  const workers = engine.workers?.() ?? [];
  const status = samplingStatus(workers, upstream !== null);
  const restarting = workers.filter(({ state }) => state !== "running").map(({ name }) => name);
  return status === "ok" ? OK : { status, message: `Restarting: ${restarting.join(", ")}` };
}

/** Creates `GET /ready`: whether the parts of the service work. Without a key, only the status. */
export function readyRoutes(context: Pick<ServiceContext, "engine" | "upstream" | "store" | "directory" | "space">): Route[] {
  const { store, directory, space } = context;
  const read = async (): Promise<Parts> => ({
    engine: engineState(context),
    database: await checked(store.selectFrom("models").select("id").limit(1).execute()),
    storage: await checked(access(directory.checkpoints, constants.R_OK | constants.W_OK)),
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
      description: "With a key, the answer has the states of the parts.",
      answer: readyReport,
      // An error body during shutdown.
      otherAnswers: { 503: z.union([readyReport, errorBody]) },
      async handle(c) {
        const parts = await read();
        const isReady = Object.values(parts).every(({ status }) => status !== "unavailable");
        const report: ReadyReport = { status: isReady ? "ready" : "unavailable", ...(isAuthenticated(c) ? { parts } : {}) };
        return c.json(report, isReady ? 200 : 503, isReady ? {} : { "Retry-After": "1" });
      },
    },
  ];
}
