import { describe, expect, it } from "vitest";
import { deferred } from "../../src/base/util/deferred.ts";
import { Holds, Leases } from "../../src/base/util/leases.ts";

interface Value {
  readonly name: string;
}
const value = (name: string) => async (): Promise<Value> => ({ name });
const fails = () => Promise.reject(new Error("no"));

/** Leases that record the disposed values. */
function recorded(maxIdle: number): { leases: Leases<string, Value>; disposed: string[] } {
  const disposed: string[] = [];
  return { disposed, leases: new Leases({ maxIdle, dispose: ({ name }, key) => disposed.push(`${key}:${name}`) }) };
}

describe("Leases", () => {
  it("makes a value once for all leases, also for leases that start while it is made", async () => {
    const leases = new Leases<string, Value>();
    const making = deferred<Value>();
    const first = leases.lease("a", () => making.promise);
    const second = leases.lease("a", fails);
    making.resolve({ name: "one" });
    const [one, two] = await Promise.all([first, second]);
    expect(two.value).toBe(one.value);
    one.release();
    one.release();
    expect(leases.isLeased("a")).toBe(true);
    expect((await leases.lease("a", value("two"))).value).toBe(one.value);
  });

  it("drops a value with its last lease, and no value under another key", async () => {
    const { leases, disposed } = recorded(0);
    const held = [await leases.lease("a", value("one")), await leases.lease("a", fails)];
    const other = await leases.lease("b", value("other"));
    for (const { release } of held) release();
    expect([leases.peek("a"), leases.isLeased("a"), disposed]).toEqual([undefined, false, ["a:one"]]);
    expect((await leases.lease("b", fails)).value).toBe(other.value);
  });

  it("keeps the most recently leased values without a lease, and every leased value", async () => {
    const { leases, disposed } = recorded(2);
    const held = await leases.lease("held", value("0"));
    for (const name of ["a", "b", "c", "b", "d"]) (await leases.lease(name, value(name))).release();
    expect(disposed).toEqual(["a:a", "c:c"]);
    held.release();
    expect(disposed).toEqual(["a:a", "c:c", "held:0"]);
  });

  it("passes a failure to every waiting caller, disposes of nothing, and makes the value again for the next", async () => {
    const { leases, disposed } = recorded(1);
    (await leases.lease("other", value("other"))).release();
    const both = [leases.lease("a", fails), leases.lease("a", value("never"))];
    for (const lease of both) await expect(lease).rejects.toThrow("no");
    expect((await leases.lease("a", value("one"))).value.name).toBe("one");
    expect(disposed).toEqual([]);
  });

  it("an abort ends the wait of one caller and its lease only", async () => {
    const { leases, disposed } = recorded(0);
    const making = deferred<Value>();
    const client = new AbortController();
    const aborted = leases.lease("a", () => making.promise, client.signal);
    const other = leases.lease("a", fails);
    client.abort(new Error("left"));
    await expect(aborted).rejects.toThrow("left");
    making.resolve({ name: "one" });
    const lease = await other;
    expect([lease.value.name, disposed]).toEqual(["one", []]);
    lease.release();
    expect(disposed).toEqual(["a:one"]);
  });

  it("a value without callers is disposed of once it is made", async () => {
    const { leases, disposed } = recorded(0);
    const making = deferred<Value>();
    const client = new AbortController();
    const aborted = leases.lease("a", () => making.promise, client.signal);
    client.abort(new Error("left"));
    await expect(aborted).rejects.toThrow("left");
    making.resolve({ name: "late" });
    await new Promise(setImmediate);
    expect(disposed).toEqual(["a:late"]);
  });

  it("disposes of a forgotten value after its last lease, while the key has a new value", async () => {
    const { leases, disposed } = recorded(1);
    const old = await leases.lease("a", value("old"));
    leases.forget("a");
    const { value: made, release } = await leases.lease("a", value("new"));
    expect([made.name, disposed]).toEqual(["new", []]);
    old.release();
    release();
    expect([leases.peek("a"), disposed]).toEqual([made, ["a:old"]]);
    leases.forget("a");
    expect(disposed).toEqual(["a:old", "a:new"]);
  });

  it("adopts a value unless the key has one", async () => {
    const { leases, disposed } = recorded(1);
    leases.adopt("a", value("one")());
    leases.adopt("a", value("two")());
    expect((await leases.lease("a", fails)).value.name).toBe("one");
    expect(disposed).toEqual(["a:two"]);
    leases.adopt("b", fails());
    await new Promise(setImmediate);
    expect((await leases.lease("b", value("three"))).value.name).toBe("three");
  });
});

describe("Holds", () => {
  it("holds a key until each hold is released", () => {
    const holds = new Holds<string>();
    const [first, second] = [holds.hold("a"), holds.hold("a")];
    first();
    first();
    expect([holds.isHeld("a"), [...holds.keys()]]).toEqual([true, ["a"]]);
    second();
    expect([holds.isHeld("a"), [...holds.keys()]]).toEqual([false, []]);
  });
});
