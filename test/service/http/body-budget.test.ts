import { describe, expect, it } from "vitest";
import { BodyBudget } from "../../../src/service/http/body-budget.ts";

const never = new AbortController().signal;

describe("BodyBudget", () => {
  it("admits bodies in order of arrival up to its limit, and a single body of any length", async () => {
    const budget = new BodyBudget(10);
    const order: string[] = [];
    const enter = (name: string, bytes: number) =>
      budget.enter(bytes, never).then((release) => {
        order.push(name);
        return release;
      });
    const first = await enter("first", 6);
    const large = enter("large", 50);
    const small = enter("small", 1);
    await Promise.resolve();
    expect([order, budget.heldBytes]).toEqual([["first"], 6]);
    first();
    const releaseLarge = await large;
    expect([order, budget.heldBytes]).toEqual([["first", "large"], 50]);
    releaseLarge();
    (await small)();
    expect([order, budget.heldBytes]).toEqual([["first", "large", "small"], 0]);
  });

  it("removes a waiting body when its client disconnects", async () => {
    const budget = new BodyBudget(10);
    const release = await budget.enter(10, never);
    const client = new AbortController();
    const left = budget.enter(10, client.signal);
    const next = budget.enter(10, never);
    client.abort(new Error("gone"));
    await expect(left).rejects.toThrow("gone");
    release();
    (await next)();
    expect(budget.heldBytes).toBe(0);
  });
});
