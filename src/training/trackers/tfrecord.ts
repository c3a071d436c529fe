/** Records of TensorBoard's event files. */
import { crc32c } from "./crc32c.ts";

/**
 * Frames a record of a TFRecord file: length, masked checksum of the length, data, masked checksum of the data, all little-endian.
 *
 * @see https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
 */
export function tfRecord(data: Uint8Array): Uint8Array {
  const record = new Uint8Array(data.length + FRAME_BYTES);
  const view = new DataView(record.buffer);
  view.setBigUint64(0, BigInt(data.length), true);
  view.setUint32(8, masked(crc32c(record.subarray(0, 8))), true);
  record.set(data, 12);
  view.setUint32(12 + data.length, masked(crc32c(data)), true);
  return record;
}

/** Constant of the mask, as in TensorFlow. */
const MASK_DELTA = 0xa282ead8;
/** Bytes of a frame besides the data: the length (8) and two checksums (4 each). */
const FRAME_BYTES = 16;

/** Masks a checksum as TensorFlow does: a checksum of data that itself contains checksums would be weak. */
function masked(crc: number): number {
  return (((crc >>> 15) | (crc << 17)) + MASK_DELTA) >>> 0;
}
