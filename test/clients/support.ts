/** Services for the client tests: one with a scripted model that calls a tool and then answers, and one with the shipped model. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { startService } from "../../src/service/index.ts";
import { startHarness } from "../capture/support.ts";

export { ADD_SCHEMA as ADD_PARAMETERS } from "../capture/support.ts";

export const CALL = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>';
export const add = ({ a, b }: { readonly a: number; readonly b: number }): string => String(a + b);

/** A client's `baseURL` and `apiKey`, and the model to ask for. */
export interface Address {
  readonly baseURL: string;
  readonly apiKey: string;
  readonly model: string;
}

/** Starts a service whose model calls `add` once if offered, answers with the result, and otherwise returns a fixed text. Closed after the test. */
export async function adder(): Promise<Address> {
  const { address, policy } = await startHarness((prompt) => {
    const result = /<\|tool\|>(.*?)<\|end\|>/su.exec(prompt)?.[1];
    if (result !== undefined) return `it is ${result}`;
    return prompt.includes("<tools>") ? `Let me see. ${CALL}` : "a naïve 🦊 says hello";
  });
  return { ...address, model: policy.id };
}
export const FOX = "a naïve 🦊 says hello";

/** Starts the embedded engine with the shipped model; closed after the file. Call it once per file, outside tests. */
export async function shippedModel(): Promise<Address> {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-clients-"));
  const service = await startService({ dataDir });
  afterAll(async () => {
    await service.close();
    await rm(dataDir, { recursive: true });
  });
  return { baseURL: `${service.url}/v1`, apiKey: service.apiKey, model: "whetstone-tiny" };
}
