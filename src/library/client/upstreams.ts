/** The `upstreams` resource of the client: lists the servers to which the service forwards chat completions, and drains them. */
import { upstreamServer, upstreamServerList, type UpstreamServer } from "../../base/schema/index.ts";
import { callJson, type Api, type CallOptions } from "./api.ts";
import { parseResponse } from "./options.ts";
import { fromWire } from "./wire.ts";

/** Server that samples instead of the engine. */
export type UpstreamInfo = Readonly<UpstreamServer>;

/**
 * The `upstreams` resource (an extension): the servers to which the service forwards chat completions. Requires the key of an administrator of
 * all entities. Each process of a service has its own state.
 *
 * @example
 * ```ts
 * await service.upstreams.drain("http://gpu-1:8000");
 * while ((await service.upstreams.list()).some(({ url, running }) => url === "http://gpu-1:8000" && running > 0))
 *   await new Promise((resolve) => setTimeout(resolve, 1000));
 * ```
 */
export interface Upstreams {
  /**
   * Lists the upstream servers, in the order of the configuration.
   *
   * @param options - Signal and time limit.
   * @returns the servers; none without an upstream.
   * @throws HttpError `E_HTTP` for an error status, 403 for other keys.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  list(options?: CallOptions): Promise<UpstreamInfo[]>;
  /**
   * Drains a server: it gets no further requests, and its requests in progress continue. Has no effect on a drained server.
   *
   * @param url - Address of the server, as configured.
   * @param options - Signal and time limit.
   * @returns all servers.
   * @throws HttpError `E_HTTP` for an error status, 404 for an unknown server.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  drain(url: string, options?: CallOptions): Promise<UpstreamInfo[]>;
  /**
   * Sends requests to a drained server again. Has no effect on other servers.
   *
   * @param url - Address of the server, as configured.
   * @param options - Signal and time limit.
   * @returns all servers.
   * @throws HttpError `E_HTTP` for an error status, 404 for an unknown server.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  resume(url: string, options?: CallOptions): Promise<UpstreamInfo[]>;
}

const PATH = "/v1/preview/upstreams";

/** Creates the `upstreams` resource of a connection. */
export function upstreamsResource(api: Api): Upstreams {
  const toServers = (answer: unknown): UpstreamInfo[] =>
    parseResponse(upstreamServerList, answer, "upstream servers").data.map((server) => fromWire(upstreamServer, server));
  const update = async (json: { readonly url: string; readonly drained: boolean }, options: CallOptions): Promise<UpstreamInfo[]> =>
    toServers(await callJson(api, "PUT", PATH, { json, ...options }));
  return {
    list: async (options = {}) => toServers(await callJson(api, "GET", PATH, options)),
    drain: (url, options = {}) => update({ url, drained: true }, options),
    resume: (url, options = {}) => update({ url, drained: false }, options),
  };
}
