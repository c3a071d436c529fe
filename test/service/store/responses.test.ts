import { expect, it, onTestFinished, vi } from "vitest";
import { openTestStore } from "../../support/postgres.ts";
import { StoredResponses, type ResponseLimits } from "../../../src/service/store/responses.ts";
import { temporaryDirectory } from "../support.ts";

const response = (id: string, owner = "a") => ({ id, owner, previous_id: null, input: "[]", response: "{}" });

async function open(limits?: ResponseLimits): Promise<StoredResponses> {
  const store = await openTestStore(await temporaryDirectory());
  onTestFinished(() => store.destroy());
  return new StoredResponses(store, limits);
}

const found = async (stored: StoredResponses, ids: readonly string[]): Promise<readonly string[]> => {
  const rows = await Promise.all(ids.map((id) => stored.find("a", id)));
  return rows.flatMap((row) => (row === undefined ? [] : [row.id]));
};

it("an owner finds and deletes its own responses alone", async () => {
  const stored = await open();
  await stored.save(response("one"));
  expect(await stored.find("b", "one")).toBeUndefined();
  expect(await stored.delete("b", "one")).toBe(false);
  expect(await stored.find("a", "one")).toMatchObject(response("one"));
  expect([await stored.delete("a", "one"), await stored.delete("a", "one")]).toEqual([true, false]);
});

it("the oldest responses over the max count are deleted, also if many are saved at once", async () => {
  const stored = await open({ maxCount: 3 });
  const ids = ["one", "two", "three", "four", "five"];
  await Promise.all(ids.slice(0, 4).map((id) => stored.save(response(id))));
  expect(await found(stored, ids)).toEqual(ids.slice(1, 4));
  await stored.save(response("five"));
  expect(await found(stored, ids)).toEqual(ids.slice(2));
});

it("the oldest responses over the max bytes are deleted", async () => {
  const stored = await open({ maxBytes: 25 });
  const ids = ["one", "two", "three"];
  for (const id of ids) await stored.save({ ...response(id), response: '{"a":"é"}' });
  expect(await found(stored, ids)).toEqual(["two", "three"]);
});

it("responses of more than 30 days ago are deleted", async () => {
  vi.useFakeTimers({ toFake: ["Date"], now: new Date("2026-01-01") });
  onTestFinished(() => void vi.useRealTimers());
  const stored = await open();
  await stored.save(response("one"));
  vi.setSystemTime(new Date("2026-01-30"));
  await stored.save(response("two"));
  expect(await found(stored, ["one", "two"])).toEqual(["one", "two"]);
  vi.setSystemTime(new Date("2026-02-01"));
  await stored.save(response("three"));
  expect(await found(stored, ["one", "two", "three"])).toEqual(["two", "three"]);
});
