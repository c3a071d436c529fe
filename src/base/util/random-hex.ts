import { randomUUID } from "node:crypto";

/** Returns the first `length` hexadecimal digits of a random UUID. Node draws the random bytes of many UUIDs at once. @default 16: 60 random bits */
export function randomHex(length: 16 | 32 = 16): string {
  return randomUUID().replaceAll("-", "").slice(0, length);
}
