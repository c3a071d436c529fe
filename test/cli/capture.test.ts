import { join } from "node:path";
import { expect, test } from "vitest";
import { readTrajectories } from "../../src/library/dataset/index.ts";
import { temporaryDirectory } from "../service/support.ts";
import { runHere } from "./run-here.ts";
import { useSharedService } from "./shared-service.ts";

useSharedService({ answer: () => "hi" });

const agent = (rest: string) => [
  process.execPath,
  "--input-type=module",
  "-e",
  `const { ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: key, WHETSTONE_SESSION_URL: session } = process.env;
   const headers = { "x-api-key": key, "content-type": "application/json" };
   const answer = await fetch(url + "/v1/messages", { method: "POST", headers,
     body: JSON.stringify({ model: "any", max_tokens: 4, messages: [{ role: "user", content: "say hi" }] }) });
   console.log((await answer.json()).content[0].text);
   ${rest}`,
];

test("capture records an agent that samples through another API, and writes its trajectory", async () => {
  const out = join(await temporaryDirectory(), "trajectory.jsonl");
  const { code, stdout, stderr } = await runHere("capture", "--base", "whetstone-tiny", "--out", out, "--", ...agent("process.exit(1);"));
  expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: `hi\n${out}: turns 1, sampled tokens 3, reward 0\n`, stderr: "" });
  const recorded = [];
  for await (const each of readTrajectories(out)) recorded.push(each);
  const [trajectory] = recorded;
  expect(trajectory).toMatchObject({ reward: 0, metrics: { exit_code: 1 }, logs: ["stdout:\nhi\n"] });
  expect(trajectory?.messages().map(({ content }) => content)).toEqual(["say hi", "hi"]);
});

test("capture takes the reward that the agent posts, and names a missing model", async () => {
  const out = join(await temporaryDirectory(), "trajectory.jsonl");
  const posts = agent(`await fetch(session + "/finish", { method: "POST", headers, body: '{"reward": 0.75}' });`);
  const { stdout } = await runHere("capture", "--base", "whetstone-tiny", "--reward", "agent", "--json", "--out", out, "--", ...posts);
  expect(JSON.parse(stdout)).toMatchObject({ reward: 0.75, turns: 1, out });
  expect(await runHere("capture", "--", "true")).toMatchObject({ code: 2, stderr: expect.stringContaining("expected --model") });
});

test("capture passes template variables, and rejects text that is not a JSON object", async () => {
  const out = join(await temporaryDirectory(), "trajectory.jsonl");
  const withKwargs = (json: string) =>
    runHere("capture", "--base", "whetstone-tiny", "--out", out, "--chat-template-kwargs", json, "--", ...agent(""));
  expect(await withKwargs('{"keep_thinking":true}')).toMatchObject({ code: 0 });
  for await (const { choices } of readTrajectories(out)) expect(choices[0]).toMatchObject({ unused_template_kwargs: ["keep_thinking"] });
  for (const json of ["[]", "keep_thinking", "null"])
    expect(await withKwargs(json)).toMatchObject({ code: 2, stderr: expect.stringContaining("Expected a JSON object") });
});
