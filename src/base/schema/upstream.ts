/** Schemas of upstream servers. All are extensions of the interface that the service implements. */

import { z } from "zod";

/** Schema of {@link UpstreamServer}. */
export const upstreamServer = z.object({
  /** Address of the server, as configured. */
  url: z.string(),
  /** `up`; `down` for 5 seconds after it could not answer; `drained` while it gets no further requests. */
  status: z.literal(["up", "down", "drained"]),
  /** Requests in progress that the answering process has sent. */
  running: z.int(),
});
/** Server that samples instead of the engine. Extension. @interface */
export type UpstreamServer = z.infer<typeof upstreamServer>;

/** Schema of {@link UpstreamServerList}. */
export const upstreamServerList = z.object({
  /** Type of the object in the wire format. */
  object: z.literal("list").default("list"),
  /** Servers in the order of the configuration; empty without an upstream. */
  data: z.array(upstreamServer),
});
/** Upstream servers of the answering process. Extension. @interface */
export type UpstreamServerList = z.infer<typeof upstreamServerList>;

/** Schema of {@link DrainUpstreamRequest}. */
export const drainUpstreamRequest = z.strictObject({
  /** Address of the server, as configured; max 1,024 characters. */
  url: z.string(),
  /** Whether the server gets no further requests. Its requests in progress continue. */
  drained: z.boolean(),
});
/** Body of `PUT /v1/preview/upstreams`. Extension. @interface */
export type DrainUpstreamRequest = z.infer<typeof drainUpstreamRequest>;
