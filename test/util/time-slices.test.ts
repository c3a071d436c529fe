import { afterEach, expect, test, vi } from "vitest";
import { TimeSlices } from "../../src/base/util/time-slices.ts";

afterEach(() => void vi.restoreAllMocks());

test("a caller of another group continues before the callers of a group with many", async () => {
  const slices = new TimeSlices();
  const order: string[] = [];
  const call = async (name: string, id: number) => {
    await slices.enter({ client: "", id });
    order.push(name);
  };
  await Promise.all([call("a0", 1), call("a1", 1), call("a2", 1), call("a3", 1), call("b", 2)]);
  expect(order).toEqual(["a0", "a1", "b", "a2", "a3"]);
});

test("a caller of another client continues before the groups of a client with many", async () => {
  const slices = new TimeSlices();
  const order: string[] = [];
  const call = async (client: string, id: number) => {
    await slices.enter({ client, id });
    order.push(`${client}${id}`);
  };
  await Promise.all([call("a", 0), call("a", 1), call("a", 2), call("a", 3), call("b", 4), call("b", 5)]);
  expect(order).toEqual(["a0", "a1", "b4", "a2", "b5", "a3"]);
});

test("callers that end work continue before callers that arrived earlier, in turn over their groups", async () => {
  const slices = new TimeSlices();
  const order: string[] = [];
  const call = async (name: string) => {
    await slices.enter();
    order.push(name);
  };
  const end = async (name: string, id: number) => {
    await slices.enterToEnd({ client: "", id });
    order.push(name);
  };
  await Promise.all([call("a"), call("b"), call("c"), end("x0", 1), end("x1", 1), end("y", 2)]);
  expect(order).toEqual(["a", "x0", "y", "x1", "b", "c"]);
});

test("callers continue in the order of their arrival, for one time slice of each turn of the event loop", async () => {
  let clockMs = 0;
  vi.spyOn(performance, "now").mockImplementation(() => clockMs);
  const slices = new TimeSlices();
  const turns: number[][] = [[]];
  const next = () => {
    turns.push([]);
    if (turns.length < 8) setImmediate(next);
  };
  setImmediate(next);
  const call = async (index: number) => {
    await slices.enter();
    // Work may continue after waits for microtasks.
    await Promise.resolve();
    turns.at(-1)!.push(index);
    clockMs += 4;
  };
  await Promise.all(Array.from({ length: 9 }, (_, index) => call(index)));
  expect(turns.filter(({ length }) => length > 0)).toEqual([[0], [1, 2, 3], [4, 5, 6], [7, 8]]);
  // Once nobody waits, a caller continues at once.
  await new Promise(setImmediate);
  expect(slices.enter()).toBeUndefined();
});

test("callers wait while turns of the event loop are postponed, and for 50 ms at most", async () => {
  let clockMs = 0;
  vi.spyOn(performance, "now").mockImplementation(() => clockMs);
  const slices = new TimeSlices();
  const continued: number[] = [];
  const call = async (index: number) => {
    await slices.enter();
    continued.push(index);
    clockMs += 4;
  };
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  slices.postpone();
  const calls = Array.from({ length: 5 }, (_, index) => call(index));
  for (const ms of [20, 20, 9]) {
    await turn();
    clockMs += ms;
    slices.postpone();
  }
  expect(continued).toEqual([]);
  await turn();
  clockMs += 1;
  slices.postpone();
  await turn();
  // The 50 ms have passed: one slice, and then 50 ms more.
  expect(continued).toEqual([0, 1, 2]);
  slices.postpone();
  await turn();
  expect(continued).toEqual([0, 1, 2]);
  // A turn that nothing postpones ends with a slice.
  await turn();
  await Promise.all(calls);
  expect(continued).toEqual([0, 1, 2, 3, 4]);
});

test("callers that waited for the same work continue in slices of their own; a caller whose work ends in its slice keeps it", async () => {
  let clockMs = 0;
  vi.spyOn(performance, "now").mockImplementation(() => clockMs);
  const slices = new TimeSlices();
  const turns: number[][] = [[]];
  let end = () => {};
  const loading = new Promise<void>((resolve) => (end = resolve));
  let isDone = false;
  const next = () => {
    turns.push([]);
    if (turns.length === 12) end();
    if (!isDone) setImmediate(next);
  };
  setImmediate(next);
  const call = async (index: number, work: Promise<void>) => {
    await slices.enter();
    await slices.after(work);
    turns.at(-1)!.push(index);
    clockMs += 4;
  };
  const calls = Array.from({ length: 7 }, (_, index) => call(index, loading));
  await Promise.all(calls);
  isDone = true;
  const sizes = turns.map(({ length }) => length).filter((length) => length > 0);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(3);
  expect(turns.flat()).toEqual([0, 1, 2, 3, 4, 5, 6]);
  await new Promise((resolve) => setTimeout(resolve, 1));
  const order: number[] = [];
  const short = async (index: number) => {
    await slices.enter();
    await slices.after(Promise.resolve());
    order.push(index);
  };
  const before = new Promise<void>((resolve) => process.nextTick(() => (order.push(-1), resolve())));
  await Promise.all([short(0), before]);
  expect(order).toEqual([0, -1]);
});
