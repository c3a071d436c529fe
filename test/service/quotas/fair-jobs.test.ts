/** The job queue: entities take turns. */
import { expect, test } from "vitest";
import { deferred } from "../../../src/base/util/deferred.ts";
import { createKey } from "../keys/resources.ts";
import { RL_JOBS, rlBody, startTestService } from "../support.ts";

test("entities take turns, and the jobs of an entity run in order of creation", { timeout: 60_000 }, async () => {
  const gate = deferred<void>();
  const service = await startTestService({ engine: { before: ({ verb }) => (verb === "forwardBackward" ? gate.promise : undefined) } });
  const jobs: { readonly id: string; readonly name: string }[] = [];
  const submit = async (entity: string, counts: number) => {
    const { key } = await createKey(service, { entity });
    const model = await service.ok("POST", "/v1/preview/models", { project: "demo", name: "m", base_model: "tiny" }, { key });
    for (let index = 0; index < counts; index++)
      jobs.push({ ...(await service.ok("POST", RL_JOBS, rlBody(model.id), { key })), name: `${entity}${index}` });
  };
  await submit("flood", 4);
  await submit("b", 2);
  await submit("c", 1);
  gate.resolve();
  const ended = async () => Promise.all(jobs.map(async ({ id, name }) => ({ name, ...(await service.ok("GET", `${RL_JOBS}/${id}`)) })));
  await expect.poll(async () => (await ended()).every(({ status }) => status === "succeeded"), { timeout: 50_000 }).toBe(true);
  const starts = (await ended()).map(({ name, training_start: start }) => ({ name, start: start as string }));
  const order = starts.toSorted((a, b) => (a.start < b.start ? -1 : 1)).map(({ name }) => name);
  expect(order).toEqual(["flood0", "b0", "c0", "flood1", "b1", "flood2", "flood3"]);
});
