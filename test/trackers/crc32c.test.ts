import { expect, it } from "vitest";
import { crc32c } from "../../src/training/trackers/crc32c.ts";

// RFC 3720, appendix B.4, where the checksums are printed least significant byte first.
it.each([
  ["32 bytes of zeroes", new Uint8Array(32), 0x8a9136aa],
  ["32 bytes of ones", new Uint8Array(32).fill(0xff), 0x62a8ab43],
  ["incrementing bytes", Uint8Array.from({ length: 32 }, (_, index) => index), 0x46dd794e],
  ["decrementing bytes", Uint8Array.from({ length: 32 }, (_, index) => 31 - index), 0x113fdb5c],
  ["the digits", Buffer.from("123456789"), 0xe3069283],
])("computes CRC-32C of %s", (_, bytes, expected) => {
  expect(crc32c(bytes)).toBe(expected);
});
