import { firstValueFrom, take, toArray } from "rxjs";
import { describe, expect, it } from "vitest";
import { watchCheckpoints } from "../../src/library/follow/index.ts";
import { rejection, useServer } from "../client/connection.ts";
import { send } from "../support/nine-routes-server.ts";

const open = useServer();
const DATA = "artifact:///team/demo/data:v0";

describe("watchCheckpoints", () => {
  it("emits the existing checkpoints, then each new checkpoint once, on a service with only the nine routes", async () => {
    const { service } = await open({ jobPolls: 2 });
    const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny" });
    const seen = firstValueFrom(watchCheckpoints(service, model.id, { intervalMs: 5 }).pipe(take(3), toArray()));
    await model.trainSft(DATA);
    await model.trainSft(DATA);
    expect((await seen).map(({ step }) => step)).toEqual([0, 1, 2]);
  });

  it("starts after the given step, so that a restarted watch neither misses nor repeats a checkpoint", async () => {
    const { service } = await open({ jobPolls: 0 });
    const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny" });
    await (await model.trainSft(DATA)).done();
    await (await model.trainSft(DATA)).done();
    const [next] = await firstValueFrom(watchCheckpoints(service, model.id, { afterStep: 1, intervalMs: 5 }).pipe(take(1), toArray()));
    expect(next?.step).toBe(2);
  });

  it("retries while the service is unavailable", async () => {
    const { server, service } = await open({ maxRetries: 0 });
    const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny" });
    let failures = 2;
    server.intercept = (_, response) => {
      if (failures-- <= 0) return false;
      send(response, 503, { detail: "restarting" });
      return true;
    };
    await expect(firstValueFrom(watchCheckpoints(service, model.id, { intervalMs: 5 }))).resolves.toMatchObject({ step: 0 });
    expect(failures).toBeLessThanOrEqual(0);
  });

  it("errors after the given time without a new checkpoint, on abort, and at once for an unknown model", async () => {
    const { service } = await open();
    const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny" });
    const watch = (options: object) =>
      rejection(firstValueFrom(watchCheckpoints(service, model.id, { afterStep: 0, intervalMs: 5, ...options })));
    expect(await watch({ timeoutMs: 30 })).toMatchObject({ code: "E_JOB_TIMEOUT" });
    const controller = new AbortController();
    const aborted = watch({ signal: controller.signal });
    controller.abort(new Error("enough"));
    expect((await aborted).message).toBe("enough");
    expect(await rejection(firstValueFrom(watchCheckpoints(service, "00000000-0000-4000-8000-000000000000")))).toMatchObject({
      status: 404,
    });
  });
});
