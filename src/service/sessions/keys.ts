/** Keys of sessions. */
import { createHash, createHmac, randomBytes } from "node:crypto";

/** Prefix that distinguishes the key of a session from the key of the service. */
const PREFIX = "whs-";
const PATTERN = /^whs-[\w-]{43}$/u;

/** Returns a new random key: 256 bits. */
export function createSessionKey(): string {
  return PREFIX + randomBytes(32).toString("base64url");
}

/** Returns the stored form of a session key: SHA-256, hexadecimal. A key of 256 random bits needs no slower hash. */
export function hashSessionKey(key: string): string {
  return createHash("sha256").update(key).digest("hex");
}

/** Returns the key with which the holder of the service's key sends requests of a session. The key is not stored. */
export function serviceKeyOfSession(apiKey: string, sessionId: string): string {
  return PREFIX + createHmac("sha256", apiKey).update(sessionId).digest("base64url");
}

/** Whether a credential has the form of a session key. */
export function isSessionKey(credential: string): boolean {
  return PATTERN.test(credential);
}

/** Returns the text with session keys replaced by `[key]`. */
export function withoutSessionKeys(text: string): string {
  return text.replaceAll(/whs-[\w-]{43}/gu, "[key]");
}
