/** The job queue: entities take turns. */
import { expect, test } from "vitest";
import { deferred } from "../../../src/base/util/deferred.ts";
import { createKey } from "../keys/resources.ts";
import { RL_JOBS, rlBody, startTestService } from "../support.ts";

/** A job to submit: the entity, the name of its model, and the priority. */
interface Submitted {
  readonly entity: string;
  readonly model: string;
  readonly priority?: number;
}

/** Submits jobs while another one runs, and returns their labels, such as `b/m(-1)`, in the order in which they start. */
async function startOrder(jobs: readonly Submitted[]): Promise<string[]> {
  const gate = deferred<void>();
  const service = await startTestService({ engine: { before: ({ verb }) => (verb === "forwardBackward" ? gate.promise : undefined) } });
  const keys = new Map<string, string>();
  const models = new Map<string, string>();
  const submitted: { readonly id: string; readonly label: string }[] = [];
  for (const { entity, model, priority } of jobs) {
    const key = keys.get(entity) ?? (await createKey(service, { entity })).key;
    keys.set(entity, key);
    const name = `${entity}/${model}`;
    const body = { project: "demo", name: model, base_model: "tiny" };
    const id = models.get(name) ?? (await service.ok("POST", "/v1/preview/models", body, { key })).id;
    models.set(name, id);
    const job = await service.ok("POST", RL_JOBS, { ...rlBody(id), experimental_config: { learning_rate: 1e-4, priority } }, { key });
    submitted.push({ id: job.id, label: priority === undefined ? name : `${name}(${priority})` });
    const read = await service.ok("GET", `${RL_JOBS}/${job.id}`, undefined, { key });
    expect(read.priority).toBe(priority ?? 0);
  }
  gate.resolve();
  const all = () => Promise.all(submitted.map(async ({ id, label }) => ({ label, ...(await service.ok("GET", `${RL_JOBS}/${id}`)) })));
  await expect.poll(async () => (await all()).every(({ status }) => status === "succeeded")).toBe(true);
  const starts = (await all()).map(({ label, training_start: start }) => ({ label, start: start as string }));
  return starts.toSorted((a, b) => (a.start < b.start ? -1 : 1)).map(({ label }) => label);
}

test("entities take turns, and the jobs of an entity run in order of creation", async () => {
  const of = (entity: string, counts: number) => Array.from({ length: counts }, (_, index): Submitted => ({ entity, model: `m${index}` }));
  expect(await startOrder([...of("flood", 4), ...of("b", 2), ...of("c", 1)])).toEqual([
    ...["flood/m0", "b/m0", "c/m0", "flood/m1", "b/m1", "flood/m2", "flood/m3"],
  ]);
});

test("priorities order the jobs of an entity, but neither other entities nor the jobs of one model", async () => {
  const order = await startOrder([
    { entity: "a", model: "first" },
    { entity: "a", model: "usual" },
    { entity: "a", model: "sweep", priority: 5 },
    { entity: "a", model: "usual", priority: -9 },
    { entity: "a", model: "urgent", priority: -1 },
    { entity: "b", model: "other", priority: 1000 },
  ]);
  expect(order).toEqual(["a/first", "b/other(1000)", "a/urgent(-1)", "a/usual", "a/usual(-9)", "a/sweep(5)"]);
});

test("a priority beyond its bounds is rejected", async () => {
  const service = await startTestService();
  const { id } = await service.ok("POST", "/v1/preview/models", { project: "demo", name: "m", base_model: "tiny" });
  const answer = await service.call("POST", RL_JOBS, { ...rlBody(id), experimental_config: { priority: 1001 } });
  expect(answer.status).toBe(422);
  expect(JSON.stringify(answer.body)).toContain("experimental_config.priority");
});
