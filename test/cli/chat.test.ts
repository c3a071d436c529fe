import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { expect, test, vi } from "vitest";
import { temporaryDirectory } from "../service/support.ts";
import { runHere } from "./run-here.ts";
import { trainedModel, useSharedService } from "./shared-service.ts";

const shared = useSharedService({
  answer: ({ prompt, step }) => {
    if (prompt.includes("lookup") && !prompt.includes("result-of"))
      return '<tool_call>{"name": "lookup", "arguments": {"key": "a"}}</tool_call>';
    return `step ${step} heard ${/say (\w+)/u.exec(prompt)?.[1] ?? "nothing"}`;
  },
});

test("chat streams the answer of a base model, of a model's newest checkpoint, and of a step", async () => {
  expect(await runHere("chat", "whetstone-tiny", "say hello")).toEqual({ code: 0, stdout: "step 0 heard hello\n", stderr: "" });
  await trainedModel(shared, "talker", 2);
  expect((await runHere("chat", "demo/talker", "say a")).stdout).toBe("step 2 heard a\n");
  expect((await runHere("chat", "demo/talker:1", "say b")).stdout).toBe("step 1 heard b\n");
  const none = await runHere("chat", "demo/nobody", "say a");
  expect([none.code, none.stderr]).toEqual([
    1,
    expect.stringContaining("does not exist on this service, which has demo/talker; base models: whetstone-tiny"),
  ]);
});

test("chat without a terminal reads its message from standard input", async () => {
  const stdin = vi.spyOn(process, "stdin", "get").mockReturnValue(Readable.from(["say ", "words\n"]) as never);
  expect((await runHere("chat", "whetstone-tiny")).stdout).toBe("step 0 heard words\n");
  stdin.mockRestore();
});

test("chat shows log-probabilities with alternatives, and names the token limit", async () => {
  const { stdout, stderr } = await runHere("chat", "whetstone-tiny", "say x", "--logprobs", "1", "--max-tokens", "3");
  expect(stdout).toMatch(/^TOKEN +LOGPROB +PROBABILITY +ALTERNATIVES$/mu);
  expect(stdout.split("\n").filter((line) => /^".*" +-?\d+\.\d{4} +\d+\.\d %/u.test(line))).toHaveLength(3);
  expect(stderr).toContain("ended at its token limit");
  expect((await runHere("chat", "whetstone-tiny", "x", "--logprobs", "21")).code).toBe(2);
});

test("chat shows tool calls, and rejects a file without tools", async () => {
  const directory = await temporaryDirectory();
  const [good, bad] = [join(directory, "tools.json"), join(directory, "bad.json")];
  await writeFile(good, JSON.stringify([{ type: "function", function: { name: "lookup", parameters: { type: "object" } } }]));
  await writeFile(bad, JSON.stringify([{ name: "lookup" }]));
  expect((await runHere("chat", "whetstone-tiny", "use lookup", "--tools", good)).stdout).toMatch(
    /^\[tool call\] lookup\(\{"key": ?"a"\}\)$/mu,
  );
  const rejected = await runHere("chat", "whetstone-tiny", "x", "--tools", bad);
  expect([rejected.code, rejected.stderr]).toEqual([1, expect.stringContaining("Expected a JSON list of tools")]);
});

test("chat with --json prints the chunks of the stream as lines", async () => {
  const { stdout } = await runHere("chat", "whetstone-tiny", "say json", "--json", "--system", "You are brief");
  const chunks = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { choices: { delta: { content?: string }; finish_reason: string | null }[] });
  expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("")).toBe("step 0 heard json");
  expect(chunks.flatMap(({ choices }) => choices.map((choice) => choice.finish_reason))).toContain("stop");
});
