import { crc32c } from "./crc32c.ts";

/**
 * Frames a record of a TFRecord file: length, masked checksum of the length, data, masked checksum of the data, all little-endian.
 *
 * @see https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
 */
export function tfRecord(data: Uint8Array): Uint8Array {
  const record = new Uint8Array(data.length + 16);
  const view = new DataView(record.buffer);
  view.setBigUint64(0, BigInt(data.length), true);
  view.setUint32(8, masked(crc32c(record.subarray(0, 8))), true);
  record.set(data, 12);
  view.setUint32(12 + data.length, masked(crc32c(data)), true);
  return record;
}

/** Masks a checksum, so that the checksum of data that contain checksums stays useful. */
function masked(crc: number): number {
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}
