/** Clients of a sampler: one with many requests delays no other one. */
import { afterEach, describe, expect, test, vi } from "vitest";
import { ActiveClients } from "../../../../src/engine/onnx/sample/active-clients.ts";
import { ClientRows } from "../../../../src/engine/onnx/sample/client-rows.ts";
import { FairShare } from "../../../../src/engine/onnx/sample/fair-share.ts";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import { PrefillLimiter } from "../../../../src/engine/onnx/sample/prefill-limiter.ts";
import type { Request } from "../../../../src/engine/onnx/sample/request.ts";
import { Harness, numbers, params } from "./harness.ts";

const request = (client: string, id: number, more: Partial<Request> = {}) =>
  ({ id, group: { client, id }, params: params(id), sampled: 0, ...more }) as Request;
const promptOf = (length: number, family: number) =>
  Int32Array.from({ length }, (_, t) => (family * 37 + t * 17 + ((family * t) % 7)) % 500);

describe("prefill time", () => {
  test("is shared equally by clients, and by the groups of a client", () => {
    const shares = new FairShare();
    const waiting = [request("a", 1), request("a", 2), request("a", 3), request("b", 4), request("b", 5)];
    const order: number[] = [];
    const costs = new Map([
      [1, 10],
      [2, 10],
      [3, 10],
      [4, 25],
      [5, 10],
    ]);
    while (waiting.length > 0) {
      const { id, group } = shares.next(waiting)!;
      order.push(id);
      shares.charge([group], costs.get(id)!);
      waiting.splice(
        waiting.findIndex((each) => each.id === id),
        1,
      );
    }
    expect(order).toEqual([1, 4, 2, 3, 5]);
  });

  test("a new client starts where the others are", () => {
    const shares = new FairShare();
    shares.charge([{ client: "a", id: 1 }], 30);
    shares.charge([{ client: "b", id: 2 }], 10);
    shares.charge([{ client: "b", id: 2 }], 50);
    // The turn of b began at 10: the new client has used less than both, and is not ahead by more than their turns.
    expect(shares.next([request("a", 1), request("b", 2), request("c", 3)])!.group.client).toBe("c");
    shares.charge([{ client: "c", id: 3 }], 15);
    expect(shares.next([request("a", 1), request("b", 2), request("c", 3)])!.group.client).toBe("c");
    shares.charge([{ client: "c", id: 3 }], 15);
    expect(shares.next([request("a", 1), request("b", 2), request("c", 3)])!.group.client).toBe("a");
  });

  test("a client without waiting prompts has a credit of 50 ms, in which it is served without a break", () => {
    const shares = new FairShare();
    const [flood, other] = [request("flood", 1), request("other", 2)];
    for (let turn = 0; turn < 20; turn++) shares.charge([flood.group], 10);
    const served: string[] = [];
    for (let turn = 0; turn < 9; turn++) {
      const { group } = shares.next([flood, other])!;
      served.push(group.client);
      shares.charge([group], 20);
    }
    expect(served).toEqual(["other", "other", "other", "flood", "other", "flood", "other", "flood", "other"]);
  });

  test("a started prompt is interrupted by a client that has had 30 ms less", () => {
    const shares = new FairShare();
    const [flood, one, other] = [request("flood", 1), request("one", 2), request("other", 3)];
    for (let turn = 0; turn < 20; turn++) shares.charge([flood.group], 10);
    expect(shares.interrupts(one, flood)).toBe(true);
    shares.charge([one.group], 10);
    expect([shares.precedes(other, one), shares.interrupts(other, one)]).toEqual([true, false]);
    shares.charge([one.group], 25);
    expect(shares.interrupts(other, one)).toBe(true);
    expect(shares.interrupts(request("one", 4), one)).toBe(shares.precedes(request("one", 4), one));
  });

  test("a priority orders the requests of its client only", () => {
    const shares = new FairShare();
    const urgent = (id: number) => request("a", id, { params: params(id, { priority: -100n }) });
    expect(shares.next([request("a", 1), urgent(2)])!.id).toBe(2);
    shares.charge([{ client: "a", id: 2 }], 100);
    expect(shares.next([urgent(3), request("b", 4)])!.id).toBe(4);
  });

  test("suspended requests continue before other requests of their client, but not before other clients", () => {
    const shares = new FairShare();
    shares.charge([{ client: "a", id: 1 }], 30);
    const suspended = request("a", 1, { sampled: 5 });
    expect(shares.next([request("a", 2), suspended])).toBe(suspended);
    expect(shares.next([suspended, request("b", 3)])!.id).toBe(3);
  });
});

describe("rows", () => {
  test("the client with the most rows gives up half of its surplus at most", () => {
    const rows = new ClientRows([request("a", 1), request("a", 2), request("a", 3), request("a", 4), request("b", 5)]);
    expect(rows.yieldingTo("c", 10)).toEqual({ client: "a", count: 2 });
    expect(rows.yieldingTo("c", 1)).toEqual({ client: "a", count: 1 });
    expect(rows.yieldingTo("b", 10)).toEqual({ client: "a", count: 1 });
    expect(rows.yieldingTo("a", 10)).toBeNull();
    expect(new ClientRows([]).yieldingTo("a", 1)).toBeNull();
    expect([rows.isNewcomer("b"), rows.isNewcomer("c"), new ClientRows([]).isNewcomer("c")]).toEqual([false, true, false]);
  });

  test("a client without rows gets one at the next token, and suspended rows continue with the same tokens", async () => {
    const [harness, alone] = [await Harness.start({ maxRows: 4 }), await Harness.start({ maxRows: 64 })];
    const options = (index: number) => params(index, { maxTokens: 60 });
    const finished: number[] = [];
    let late: ReturnType<Harness["add"]> | undefined;
    let tokensBefore = 0;
    harness.onToken = ({ request: id, token }) => {
      if (token.finish) finished.push(id);
      if (id === 0 && harness.tokens.get(0)!.length === 20)
        late = harness.add(promptOf(30, 99), params(99, { maxTokens: 3 }), "p", { client: "other", id: 99 });
      if (late !== undefined && id === late.id && harness.tokens.get(id)!.length === 1) tokensBefore = harness.tokens.get(0)!.length;
    };
    const flood = Array.from({ length: 12 }, (_, index) =>
      harness.add(promptOf(30, index), options(index), "p", { client: "flood", id: index }),
    );
    const results = await Promise.all(flood.map(({ done }) => done));
    await late!.done;
    expect(tokensBefore).toBeGreaterThanOrEqual(20);
    expect(tokensBefore).toBeLessThanOrEqual(22);
    expect(finished[0]).toBe(late!.id);
    const expected = await Promise.all(flood.map((_, index) => alone.run(promptOf(30, index), options(index))));
    expect(results.map((tokens) => tokens.map(({ id }) => id))).toEqual(expected.map((tokens) => tokens.map(({ id }) => id)));
  });

  test("requests of one client wait for a row, as without clients", async () => {
    const harness = await Harness.start({ maxRows: 2 });
    const first: number[] = [];
    harness.onToken = ({ request: id }) => {
      if (harness.tokens.get(id)!.length === 1) first.push(id);
    };
    const group = (id: number) => ({ client: "a", id });
    const all = Array.from({ length: 6 }, (_, index) =>
      harness.run(promptOf(20, index), params(index, { maxTokens: 8 }), "p", group(index)),
    );
    await Promise.all(all);
    // Two prompts are computed together.
    expect([0, 2, 4].map((at) => first.slice(at, at + 2).toSorted((a, b) => a - b))).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
    ]);
    // No row was suspended: each request has its tokens, drawn once.
    expect([...harness.tokens.values()].map(({ length }) => length)).toEqual(Array(6).fill(8));
  });
});

describe("decode steps", () => {
  afterEach(() => void vi.restoreAllMocks());

  /** Returns a sampler that records the rows of each decode step. */
  async function recording() {
    const on = onHost(1);
    const steps: number[] = [];
    const place: typeof on.place = {
      ...on.place,
      run(input) {
        if (input.kind === "decode") steps.push(input.tokens.length);
        return on.place.run(input);
      },
    };
    return { harness: await Harness.start({}, { ...on, place }), steps };
  }
  const options = (index: number) => params(index, { maxTokens: 30 + (index % 4) });

  test("decode a part of the rows while several clients are active, with the same results", async () => {
    vi.spyOn(PrefillLimiter.prototype, "turnRows", "get").mockReturnValue(4);
    const [{ harness, steps }, alone] = [await recording(), await recording()];
    const clientOf = (index: number) => (index === 11 ? "b" : "a");
    let before: readonly number[] | null = null;
    let widest = 0;
    harness.onToken = () => {
      const all = [...harness.tokens.values()];
      if (all.some((tokens) => tokens.length === 0 || tokens.at(-1)?.finish)) return;
      // From the start of the last row to the end of the first one, all rows get the same number of tokens, or one more.
      const counts = all.map(({ length }) => length);
      before ??= counts;
      const gained = counts.map((count, index) => count - before![index]!);
      widest = Math.max(widest, Math.max(...gained) - Math.min(...gained));
    };
    const results = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        harness.run(promptOf(30, index), options(index), "p", { client: clientOf(index), id: index }),
      ),
    );
    expect(Math.max(...steps)).toBe(4);
    expect(widest).toBe(1);
    const expected = await Promise.all(
      Array.from({ length: 12 }, (_, index) => alone.harness.run(promptOf(30, index), options(index), "p", { client: "a", id: index })),
    );
    expect(Math.max(...alone.steps)).toBe(12);
    expect(results.map(numbers)).toEqual(expected.map(numbers));
  });

  test("take 10 ms, or the time of 8 rows", () => {
    const limiter = new PrefillLimiter();
    limiter.noteDecode(100, 25);
    expect([limiter.turnMs, limiter.turnRows]).toEqual([10, 40]);
    const large = new PrefillLimiter();
    large.noteDecode(4, 64);
    expect([large.turnMs, large.turnRows]).toEqual([128, 8]);
  });

  test("clients are active for 10 s after their last request", () => {
    const clients = new ActiveClients();
    clients.see([request("a", 1)], 0);
    clients.see([request("a", 1)], 1);
    expect(clients.areSeveral(1)).toBe(false);
    clients.see([request("b", 1)], 5000);
    expect([clients.areSeveral(5000), clients.areSeveral(10_001), clients.areSeveral(10_002)]).toEqual([true, true, false]);
    clients.see([request("a", 1)], 10_002);
    expect(clients.areSeveral(10_002)).toBe(true);
  });
});
