import { fileURLToPath } from "node:url";

/** The base model that ships with the package: what a chat request without a model gets. */
export const SHIPPED_BASE = "whetstone-tiny";

/** Its directory. */
export function shippedDirectory(): string {
  return fileURLToPath(new URL(`../../models/${SHIPPED_BASE}`, import.meta.url));
}
