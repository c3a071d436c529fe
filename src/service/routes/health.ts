import { Hono } from "hono";
import type { ServiceEnvironment } from "../body.ts";

/** `GET /health`: answers without a key, and says nothing but that the service answers. */
export function healthRoutes(): Hono<ServiceEnvironment> {
  return new Hono<ServiceEnvironment>().get("/health", (c) => c.json({ status: "ok" }));
}
