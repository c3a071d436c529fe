import { afterEach } from "vitest";
import type { Service } from "../../src/library/client/index.ts";
import { connect } from "../../src/index.ts";
import { startNineRoutesServer, type NineRoutesServer } from "../support/nine-routes-server.ts";

/** Returns a function that starts a fixture server with a client, both closed after each test. */
export function useServer(): (options?: {
  jobPolls?: number;
  maxRetries?: number;
}) => Promise<{ server: NineRoutesServer; service: Service }> {
  const open: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const close of open.splice(0).reverse()) await close();
  });
  return async ({ jobPolls, maxRetries } = {}) => {
    const server = await startNineRoutesServer(jobPolls === undefined ? {} : { jobPolls });
    open.push(() => server.close());
    const service = await connect({ baseUrl: server.url, apiKey: server.apiKey, maxRetries });
    open.push(() => service.close());
    return { server, service };
  };
}

/** Returns the error of a promise that must reject. */
export async function rejection(promise: Promise<unknown>): Promise<Error> {
  try {
    await promise;
  } catch (error) {
    return error as Error;
  }
  throw new Error("expected a rejection");
}
