/** Keys of sessions. */
import { randomBytes } from "node:crypto";

/** Prefix that distinguishes the key of a session from the key of the service. */
const PREFIX = "whs-";
const PATTERN = /^whs-[\w-]{43}$/u;

/** Returns a new random key: 256 bits. */
export function createSessionKey(): string {
  return PREFIX + randomBytes(32).toString("base64url");
}

/** Whether a credential has the form of a session key. */
export function isSessionKey(credential: string): boolean {
  return PATTERN.test(credential);
}

/** Returns the text with session keys replaced by `[key]`. */
export function withoutSessionKeys(text: string): string {
  return text.replaceAll(/whs-[\w-]{43}/gu, "[key]");
}
