/** Tensors of a GGUF file, encoded from float32. */
import { encodedBytes, ENCODERS, type ExportDtype } from "../element-encoders.ts";
import { interleaveHeads } from "./architecture.ts";
import type { WrittenTensor, MetadataValue } from "./writer.ts";
import { last } from "../../base/util/values.ts";

/** Number of each element type in ggml (`tensor`), and `general.file_type` of a file with mostly this type (`file`). */
const GGML_TYPES: Readonly<Record<ExportDtype, { readonly tensor: number; readonly file: number }>> = {
  float32: { tensor: 0, file: 0 },
  float16: { tensor: 1, file: 1 },
  q8_0: { tensor: 8, file: 7 },
  bfloat16: { tensor: 30, file: 32 },
};
/** Version of the quantization formats. */
const QUANTIZATION_VERSION = 2;

/** Tensor to encode. */
export interface TensorSource {
  /** Name in the file. */
  readonly name: string;
  /** Shape, row-major. */
  readonly shape: readonly number[];
  /** Type of matrices; vectors are float32. */
  readonly dtype: ExportDtype;
  /** Number of heads whose rows are reordered for interleaved rotation; 0 = none. */
  readonly interleavedHeads: number;
  /** Number to add to the elements. */
  readonly offset: number;
  /** Reads the elements, row-major. */
  readonly read: () => Promise<Float32Array> | Float32Array;
}

/**
 * Describes a tensor of a file. Vectors are float32, as llama.cpp computes with them. Rows that do not divide into blocks of Q8_0 are
 * float16, as llama.cpp's converter writes them.
 */
export function ggufTensor({ name, shape, dtype, interleavedHeads, offset, read }: TensorSource): WrittenTensor {
  const isVector = shape.length === 1;
  const rowLength = last(shape);
  const matrixType = rowLength % ENCODERS[dtype].blockLength === 0 ? dtype : "float16";
  const type = isVector ? "float32" : matrixType;
  const elements = shape.reduce((product, size) => product * size, 1);
  return {
    name,
    shape,
    type: GGML_TYPES[type].tensor,
    bytes: encodedBytes(ENCODERS[type], elements),
    async data() {
      const values = await read();
      const shifted = offset === 0 ? values : values.map((value) => value + offset);
      if (interleavedHeads === 0) return ENCODERS[type].encode(shifted);
      // A bias has one element per row of its matrix.
      return ENCODERS[type].encode(interleaveHeads(shifted, interleavedHeads, isVector ? 1 : rowLength));
    },
  };
}

/** Returns the metadata of a file with mostly elements of one type. */
export function typeMetadata(dtype: ExportDtype): (readonly [string, MetadataValue])[] {
  return [
    ["general.file_type", { type: "uint32", value: GGML_TYPES[dtype].file }],
    ["general.quantization_version", { type: "uint32", value: QUANTIZATION_VERSION }],
  ];
}
