import { expect, test } from "vitest";
import { deferred } from "../../src/util/deferred.ts";
import { SharedValues } from "../../src/util/shared-values.ts";

test("a value is made once for all who hold it, those who wait for it included", async () => {
  const shared = new SharedValues<string, object>();
  const making = deferred<object>();
  const first = shared.hold("a", () => making.promise);
  const second = shared.hold("a", () => Promise.reject(new Error("made twice")));
  making.resolve({});
  const [one, two] = await Promise.all([first, second]);
  expect(two.value).toBe(one.value);
  one.letGo();
  one.letGo();
  expect((await shared.hold("a", async () => ({}))).value).toBe(two.value);
});

test("a value is forgotten with the last who holds it, and those under other keys stay", async () => {
  const shared = new SharedValues<string, object>();
  const [a, again, other] = [
    await shared.hold("a", async () => ({})),
    await shared.hold("a", async () => ({})),
    await shared.hold("b", async () => ({})),
  ];
  a.letGo();
  again.letGo();
  expect((await shared.hold("a", async () => ({}))).value).not.toBe(a.value);
  expect((await shared.hold("b", async () => ({}))).value).toBe(other.value);
});

test("a failure reaches everyone who waits, and the next caller tries again", async () => {
  const shared = new SharedValues<string, number>();
  const fails = () => Promise.reject(new Error("no"));
  const both = [shared.hold("a", fails), shared.hold("a", fails)];
  for (const one of both) await expect(one).rejects.toThrow("no");
  expect((await shared.hold("a", async () => 1)).value).toBe(1);
});
