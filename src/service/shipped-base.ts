import { fileURLToPath } from "node:url";
import { packageFile } from "../util/package-file.ts";

/** The base model that ships with the package: what a chat request without a model gets. */
export const SHIPPED_BASE = "whetstone-tiny";

/** Its directory. */
export function shippedDirectory(): string {
  return fileURLToPath(packageFile(`models/${SHIPPED_BASE}`));
}
