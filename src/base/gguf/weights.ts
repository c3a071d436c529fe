/** Weights of a GGUF file by the names of the tensors in Hugging Face layout. */
import { DataError } from "../errors.ts";
import { type GgufArchitecture, architectureOf } from "./architectures.ts";
import { type GgufFile, openGguf } from "./file.ts";
import type { GgufTensor } from "./header.ts";
import { MetadataKeys } from "./keys.ts";
import { ggufTensorName } from "./tensor-names.ts";
import { last } from "../util/values.ts";

/** Open weights. */
export interface GgufWeights {
  /** Name of the file without its directory, for error messages. */
  readonly label: string;
  /** Returns the shape of a tensor; undefined if the file does not have it. */
  shapeOf(name: string): readonly number[] | undefined;
  /**
   * Reads a tensor as float32 in pieces, in the order of Hugging Face layout.
   *
   * @param visit - Called with each piece and the index of its first element. The piece is valid only during the call.
   * @throws DataError `E_DATA` naming the tensor if it does not exist or contains NaN or an infinity.
   */
  readPieces(name: string, visit: (piece: Float32Array, first: number) => void): Promise<void>;
  close(): Promise<void>;
}

/** Opens the weights of a file. Throws the errors of `openGguf`, and `E_UNSUPPORTED` for another architecture. */
export async function openGgufWeights(path: string): Promise<GgufWeights> {
  const file = await openGguf(path);
  try {
    const { name, architecture } = architectureOf(file);
    const tensorOf = (hubName: string) => tensorFor(file, architecture, new MetadataKeys(file.metadata, name), hubName);
    return {
      label: file.label,
      shapeOf: (hubName) => tensorOf(hubName)?.tensor.shape,
      async readPieces(hubName, visit) {
        const found = tensorOf(hubName);
        if (found === undefined) throw new DataError(`${file.label}: expected tensor "${hubName}", found none`);
        const { tensor, heads, gainOffset } = found;
        if (heads > 0) return readHeads(file, tensor, heads, visit);
        if (gainOffset === 0) return file.readPieces(tensor, visit);
        return file.readPieces(tensor, (piece, first) => {
          for (let i = 0; i < piece.length; i++) piece[i]! -= gainOffset;
          visit(piece, first);
        });
      },
      close: () => file.close(),
    };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Tensor of the file, and the changes that turn it into the tensor in Hugging Face layout. */
interface FoundTensor {
  readonly tensor: GgufTensor;
  /** Number of heads with rows in the order of interleaved rotation; 0 for other tensors. */
  readonly heads: number;
  /** Number to subtract from every element. */
  readonly gainOffset: number;
}

function tensorFor(file: GgufFile, architecture: GgufArchitecture, keys: MetadataKeys, hubName: string): FoundTensor | undefined {
  const found = ggufTensorName(hubName, architecture.parts);
  const tensor = found === undefined ? undefined : file.tensors.get(found.name);
  if (found === undefined || tensor === undefined) return undefined;
  const isNorm = hubName.endsWith("norm.weight");
  return { tensor, heads: architecture.isInterleaved ? headsOf(keys, found.part) : 0, gainOffset: isNorm ? architecture.gainOffset : 0 };
}

/** Returns the number of heads of a query or key projection; 0 for other parts. */
function headsOf(keys: MetadataKeys, part: string | undefined): number {
  if (part !== "self_attn.q_proj" && part !== "self_attn.k_proj") return 0;
  const heads = keys.sameInAllLayers("attention.head_count") ?? 0;
  return part === "self_attn.q_proj" ? heads : (keys.sameInAllLayers("attention.head_count_kv") ?? heads);
}

/**
 * Reads a query or key projection: within each head, row `2i` goes to row `i` of the first half, and row `2i + 1` to row `i` of the second.
 */
async function readHeads(
  file: GgufFile,
  tensor: GgufTensor,
  heads: number,
  visit: (piece: Float32Array, first: number) => void,
): Promise<void> {
  const headElements = tensor.size / heads;
  const rowLength = tensor.shape.length === 1 ? 1 : last(tensor.shape);
  const half = headElements / rowLength / 2;
  if (!Number.isInteger(half))
    throw new DataError(
      `${file.label}: tensor "${tensor.name}": expected an even number of rows in each of ${heads} heads, got shape [${tensor.shape.join(", ")}]`,
    );
  const head = new Float32Array(headElements);
  await file.readPieces(
    tensor,
    (piece, first) => {
      for (let start = 0; start < piece.length; start += headElements) {
        for (let row = 0; row < 2 * half; row++) {
          const from = start + row * rowLength;
          const to = ((row & 1) * half + (row >> 1)) * rowLength;
          head.set(piece.subarray(from, from + rowLength), to);
        }
        visit(head, first + start);
      }
    },
    headElements,
  );
}
