import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { scenarioIdOf } from "../../src/library/environment/index.ts";
import { readScenarios, splitScenarios, writeScenarios, type ToolScenario } from "../../src/library/scenarios/index.ts";
import { temporaryDirectory } from "../service/support.ts";

const scenario = (index: number): ToolScenario => ({
  id: `s${index}`,
  task: `Task ${index}`,
  difficulty: 1 + (index % 5),
  tools: ["find"],
});
const numbered = (count: number) => Array.from({ length: count }, (_, index) => scenario(index));

describe("a scenario file", () => {
  it.each(["train.jsonl", "train.jsonl.gz"])(
    "%s returns the scenarios with their other keys, in a directory that did not exist",
    async (name) => {
      const path = join(await temporaryDirectory(), "new", name);
      const scenarios = [...numbered(3), { ...scenario(3), answer: "42" }];
      expect(await writeScenarios(path, scenarios)).toMatchObject({ path, count: 4 });
      expect(await readScenarios(path)).toEqual(scenarios);
    },
  );

  it("has one scenario and the schema version per line", async () => {
    const path = join(await temporaryDirectory(), "one.jsonl");
    await writeScenarios(path, [scenario(0)]);
    expect(await readFile(path, "utf8")).toBe('{"schema_version":1,"id":"s0","task":"Task 0","difficulty":1,"tools":["find"]}\n');
  });

  it("may be written by hand: the id is derived from the task, and tools may be absent", async () => {
    const path = join(await temporaryDirectory(), "hand.jsonl");
    await writeFile(path, '{"task": "Find Dune.", "difficulty": 1}\n');
    const [read] = await readScenarios(path);
    expect(read).toEqual({ id: expect.stringMatching(/^[0-9a-f]{16}$/u) as string, task: "Find Dune.", difficulty: 1, tools: [] });
    expect(scenarioIdOf({ name: "e" }, read!)).toBe(read!.id);
  });

  it.each<[string, object, RegExp]>([
    ["a task without text", { task: " " }, /bad\.jsonl:2: .*`task`/u],
    ["a difficulty out of range", { difficulty: 6 }, /bad\.jsonl:2: .*`difficulty`/u],
    ["tools that are not names", { tools: [1] }, /bad\.jsonl:2: .*`tools\.0`/u],
    ["an id of an earlier line", { id: "s0" }, /bad\.jsonl:2: expected a new id, got the id of .*bad\.jsonl:1 again: `s0`/u],
    ["a task of an earlier line", { task: "task  0." }, /bad\.jsonl:2: expected a new task, .*`task 0`/u],
  ])("with %s is rejected with file and line", async (_, parts, message) => {
    const path = join(await temporaryDirectory(), "bad.jsonl");
    const lines = [scenario(0), { ...scenario(1), ...parts }];
    await writeFile(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    await expect(readScenarios(path)).rejects.toMatchObject({ code: "E_DATA", message: expect.stringMatching(message) as string });
  });

  it("stays unchanged if a scenario is invalid or repeated", async () => {
    const directory = await temporaryDirectory();
    const path = join(directory, "kept.jsonl");
    await writeScenarios(path, [scenario(0)]);
    const before = await readFile(path, "utf8");
    await expect(writeScenarios(path, [scenario(1), { ...scenario(2), difficulty: 9 }])).rejects.toThrow(/^Scenario 2: .*`difficulty`/u);
    await expect(writeScenarios(path, [scenario(1), scenario(1)])).rejects.toMatchObject({ code: "E_DATA" });
    expect(await readFile(path, "utf8")).toBe(before);
    expect(await readdir(directory)).toEqual(["kept.jsonl"]);
  });
});

describe("splitScenarios", () => {
  it("holds out about the requested fraction; another seed holds out others", () => {
    const { train, eval: held } = splitScenarios(numbered(1000), { eval: 0.2 });
    expect(train.length + held.length).toBe(1000);
    // Binomial(1000, 0.2): five standard deviations are 63.
    expect(Math.abs(held.length - 200)).toBeLessThan(63);
    expect(splitScenarios(numbered(1000), { eval: 0.2, seed: 1 }).eval).not.toEqual(held);
  });

  test.prop([fc.uniqueArray(fc.nat(500)), fc.uniqueArray(fc.nat(500)), fc.integer()])(
    "assigns a scenario the same set, whatever the order and the other scenarios are",
    (some, others, seed) => {
      const split = (indices: readonly number[]) => splitScenarios(indices.map(scenario), { eval: 0.3, seed });
      const [small, large] = [split(some), split([...others, ...some])];
      for (const { id } of small.eval) expect(large.train.map((each) => each.id)).not.toContain(id);
      for (const { id } of small.train) expect(large.eval.map((each) => each.id)).not.toContain(id);
      expect([...small.train, ...small.eval]).toHaveLength(some.length);
    },
  );

  it.each<[string, { eval: number; seed?: number }]>([
    ["eval", { eval: 0 }],
    ["eval", { eval: 1 }],
    ["eval", { eval: Number.NaN }],
    ["seed", { eval: 0.5, seed: 0.5 }],
  ])("rejects an invalid `%s`", (param, options) => {
    expect(() => splitScenarios([], options)).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }) as Error);
  });
});
