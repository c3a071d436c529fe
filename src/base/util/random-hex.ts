import { randomUUID } from "node:crypto";

/**
 * Returns the first `length` hexadecimal digits of a random UUID, for ids that are no secrets. Faster than `randomBytes`: Node draws the
 * bytes of many UUIDs at once.
 *
 * @param length - 16 digits have 60 random bits, 32 have 122. @default 16
 */
export function randomHex(length: 16 | 32 = 16): string {
  return randomUUID().replaceAll("-", "").slice(0, length);
}
