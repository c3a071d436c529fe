/** Routes of the data that the page reads: `/ui/api/*` without the session. */
import { Hono } from "hono";
import { streamSSE } from "hono/streaming";
import { z } from "zod";
import { requireValid } from "../../base/util/validation.ts";
import type { NotesChange } from "../../run/data.ts";
import type { Page, StepSummary, TrajectoryRow } from "./api.ts";
import { compareRuns } from "./compare-runs.ts";
import { compareSteps } from "./compare.ts";
import { diskUse } from "./disk.ts";
import type { RolloutFile, Rollouts } from "./rollouts.ts";
import type { Runs } from "./runs.ts";
import { searchTrajectories } from "./search.ts";
import { openStream } from "./stream.ts";

/** Default number of items of a page. */
const DEFAULT_LIMIT = 100;
/** Max number of items of a page. */
const MAX_LIMIT = 500;
/** Max characters of a text to search for. */
const MAX_TEXT = 500;
/** Max runs per request. A chart of more curves cannot be read. */
const MAX_RUNS = 32;

/** Max characters of a note. */
const MAX_NOTE = 10_000;
/** Max tags of a run. */
const MAX_TAGS = 20;
/** Max characters of a tag. */
const MAX_TAG = 50;

/** Integer of at least 0 in a path or a query. */
const whole = z.coerce.number().int().min(0);
/** Query parameters of a page of a list. */
const paging = z.object({
  offset: whole.default(0),
  limit: z.coerce.number().int().min(1).max(MAX_LIMIT).default(DEFAULT_LIMIT),
});
/** Path parameters of a step's file of trajectories. */
const stepPath = z.object({ run: z.string(), split: z.enum(["train", "eval"]), step: whole });
/** Path parameters of a trajectory. */
const trajectoryPath = stepPath.extend({ line: whole, index: whole });
/** Query of a step's trajectories. */
const trajectoryQuery = paging.extend({
  /** Scenario, as `scenario` of the rows. */
  scenario: z.string().optional(),
  /** Lowest reward. */
  min: z.coerce.number().optional(),
  /** Highest reward. */
  max: z.coerce.number().optional(),
  /** Order; `position` is the order of the groups in the report: by scenario, then index. */
  sort: z.enum(["position", "reward", "tokens", "turns"]).default("position"),
  order: z.enum(["ascending", "descending"]).default("ascending"),
});
/** Body of a change of notes. */
const notesBody = z
  .strictObject({
    note: z.string().max(MAX_NOTE).optional(),
    tags: z.array(z.string().trim().min(1).max(MAX_TAG)).max(MAX_TAGS).optional(),
  })
  .refine(({ note, tags }) => note !== undefined || tags !== undefined, "expected `note` or `tags`") satisfies z.ZodType<NotesChange>;
/** Query of a comparison of two steps, `a` and `b`, of one run. */
const compareQuery = paging.extend({ a: whole, b: whole, split: z.enum(["train", "eval"]).default("eval") });
/** Query of a search. */
const searchQuery = z.object({
  text: z.string().min(1).max(MAX_TEXT),
  split: z.enum(["train", "eval"]).optional(),
  step: whole.optional(),
  limit: paging.shape.limit,
});
/** Query of a comparison of runs. */
const compareRunsQuery = z.object({ run: z.array(z.string()).max(MAX_RUNS), by: z.enum(["scenario", "step"]).default("scenario") });
/** Query of metrics and of the event stream. */
const runsQuery = z.object({ run: z.array(z.string()).max(MAX_RUNS), name: z.array(z.string()) });

/** Dependencies of the routes. */
export interface DataContext {
  readonly runs: Runs;
  readonly rollouts: Rollouts;
  /** Data directory of the service; its file system is the one whose free space is reported. */
  readonly dataDir: string;
  /** Signal that ends open streams. */
  readonly signal: AbortSignal;
}

/** Creates the routes described in `api.ts`. */
export function dataRoutes({ runs, rollouts, dataDir, signal }: DataContext): Hono {
  const app = new Hono();
  /** Returns the file of trajectories that path parameters name. */
  const fileOf = async (parameters: object): Promise<RolloutFile> => {
    const { run, split, step } = requireValid(stepPath, parameters);
    return (await runs.get(run)).file(split, step);
  };

  app.get("/runs", async (c) => c.json((await runs.list()).map((reader) => reader.summary())));
  app.get("/runs/:run", async (c) => c.json(await (await runs.get(c.req.param("run"))).details()));
  app.patch("/runs/:run/notes", async (c) => {
    const change = requireValid(notesBody, await c.req.json().catch(() => undefined));
    const id = c.req.param("run");
    await (await runs.get(id)).annotate(change);
    return c.json((await runs.get(id)).summary());
  });
  app.get("/runs/:run/steps", async (c) => c.json(await (await runs.get(c.req.param("run"))).steps()));

  app.get("/runs/:run/steps/:split/:step/groups", async (c) => {
    const groups = (await rollouts.groups(await fileOf(c.req.param()))).map(({ data }) => data);
    return c.json(pageOf(groups, requireValid(paging, c.req.query())));
  });
  app.get("/runs/:run/steps/:split/:step/trajectories", async (c) => {
    const query = requireValid(trajectoryQuery, c.req.query());
    return c.json(pageOf(selected(await rollouts.rows(await fileOf(c.req.param())), query), query));
  });
  app.get("/runs/:run/steps/:split/:step/trajectories/:line/:index", async (c) => {
    const { line, index } = requireValid(trajectoryPath, c.req.param());
    return c.json(await rollouts.trajectory(await fileOf(c.req.param()), line, index));
  });
  app.get("/runs/:run/search", async (c) => {
    const { text, split, step, limit } = requireValid(searchQuery, c.req.query());
    const reader = await runs.get(c.req.param("run"));
    const isSelected = (summary: StepSummary) =>
      (split === undefined || summary.split === split) && (step === undefined || summary.step === step);
    const newestFirst = (await reader.steps()).filter(isSelected).sort((a, b) => b.step - a.step);
    const files = newestFirst.map((summary) => reader.file(summary.split, summary.step));
    return c.json(await searchTrajectories(rollouts, files, { text, limit, signal: c.req.raw.signal }));
  });
  app.get("/runs/:run/compare", async (c) => {
    const query = requireValid(compareQuery, c.req.query());
    const reader = await runs.get(c.req.param("run"));
    const { split, a, b } = query;
    return c.json(pageOf(await compareSteps(rollouts, reader.file(split, a), reader.file(split, b)), query));
  });

  app.get("/metrics", async (c) => {
    const { run, name } = requireValid(runsQuery, { run: c.req.queries("run") ?? [], name: c.req.queries("name") ?? [] });
    const readers = await Promise.all(run.map((id) => runs.get(id)));
    return c.json(readers.map((reader) => reader.metrics(name)));
  });
  app.get("/compare", async (c) => {
    const { run: wanted, by } = requireValid(compareRunsQuery, { run: c.req.queries("run") ?? [], by: c.req.query("by") });
    return c.json(await compareRuns(runs, { wanted, by, signal: c.req.raw.signal }));
  });
  app.get("/events", async (c) => {
    const { run: wanted } = requireValid(runsQuery, { run: c.req.queries("run") ?? [], name: [] });
    const send = await openStream(runs, { wanted, lastEventId: c.req.header("last-event-id"), signal });
    return streamSSE(c, send);
  });
  app.get("/disk", async (c) => c.json(await diskUse(await runs.list(), dataDir)));
  return app;
}

/** Returns a page of a list. */
function pageOf<T>(items: readonly T[], { offset, limit }: z.output<typeof paging>): Page<T> {
  return { total: items.length, offset, items: items.slice(offset, offset + limit) };
}

/** Returns the rows that match a query, in its order. */
function selected(rows: readonly TrajectoryRow[], query: z.output<typeof trajectoryQuery>): TrajectoryRow[] {
  const { scenario, min = -Infinity, max = Infinity, sort, order } = query;
  const matches = rows.filter((row) => row.reward >= min && row.reward <= max && (scenario === undefined || row.scenario === scenario));
  // The sort is stable: equal rows stay in the order of position.
  if (sort !== "position") matches.sort((a, b) => (order === "ascending" ? a[sort] - b[sort] : b[sort] - a[sort]));
  else if (order === "descending") matches.reverse();
  return matches;
}
