/**
 * Weights of a GGUF file by the names of the tensors in Hugging Face layout. Compared with that layout, files of some architectures have
 * the rows of query and key projections in another order, and other gains of norms; both are converted while tensors are read.
 */
import { DataError } from "../errors.ts";
import { BLOCK_ELEMENTS, type BlockWriter } from "./blocks.ts";
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
  /**
   * Returns the shape of a tensor; undefined if the file does not have it.
   *
   * @throws DataError `E_DATA` or UnsupportedError `E_UNSUPPORTED` if the rows of a projection cannot be assigned to heads.
   */
  shapeOf(name: string): readonly number[] | undefined;
  /**
   * Reads a tensor as float32 in pieces, in the order of Hugging Face layout.
   *
   * @param visit - Called with each piece and the index of its first element. The piece is valid only during the call.
   * @throws DataError `E_DATA` naming the tensor if it does not exist or contains NaN or an infinity, or if the file was truncated.
   * @throws as `shapeOf`.
   */
  readPieces(name: string, visit: (piece: Float32Array, firstElement: number) => void): Promise<void>;
  /**
   * Writes a matrix to blocks without rounding, in the order of Hugging Face layout, if the type of the file allows it.
   *
   * @param name - Matrix, not a norm: offsets of gains are not subtracted.
   * @param firstBlock - Block of `writer` that the tensor starts at.
   * @returns Whether the tensor was written: whether 32 elements have a common scale in the file and at most as many bits as in `writer`.
   * @throws DataError `E_DATA` as {@link readPieces}.
   */
  readBlocks(name: string, writer: BlockWriter, firstBlock: number): Promise<boolean>;
  close(): Promise<void>;
}

/** Opens the weights of a file. Throws the errors of `openGguf`, and `E_UNSUPPORTED` for another architecture. */
export async function openGgufWeights(path: string): Promise<GgufWeights> {
  const file = await openGguf(path);
  try {
    const { name, architecture } = architectureOf(file);
    const keys = new MetadataKeys(file.metadata, name);
    const find = (hubName: string) => findTensor(file, architecture, keys, hubName);
    const requireTensor = (hubName: string): FoundTensor => {
      const tensor = find(hubName);
      if (tensor === undefined) throw new DataError(`${file.label}: expected tensor "${hubName}", found none`);
      return tensor;
    };
    return {
      label: file.label,
      shapeOf: (hubName) => find(hubName)?.tensor.shape,
      async readPieces(hubName, visit) {
        const { tensor, interleavedHeads, gainOffset } = requireTensor(hubName);
        if (interleavedHeads !== null) return readHeads(file, tensor, interleavedHeads, visit);
        if (gainOffset === 0) return file.readPieces(tensor, visit);
        return file.readPieces(tensor, (piece, firstElement) => {
          for (let i = 0; i < piece.length; i++) piece[i]! -= gainOffset;
          visit(piece, firstElement);
        });
      },
      // The engine stores only matrices in blocks (`stored-weights.ts`), and a matrix has no gain offset.
      async readBlocks(hubName, writer, firstBlock) {
        const { tensor, interleavedHeads } = requireTensor(hubName);
        const rowLength = last(tensor.shape);
        const { levels: levelType } = tensor.type;
        if (levelType === undefined || levelType.bits > writer.bits || rowLength % BLOCK_ELEMENTS !== 0) return false;
        const blocksPerRow = rowLength / BLOCK_ELEMENTS;
        const rowOf = interleavedHeads !== null ? headRows(file, tensor, interleavedHeads) : (row: number) => row;
        await file.readLevels(tensor, (levels, scale, offset, firstElement) => {
          const block = firstElement / BLOCK_ELEMENTS;
          const row = Math.floor(block / blocksPerRow);
          const blockInRow = block % blocksPerRow;
          writer.write(firstBlock + rowOf(row) * blocksPerRow + blockInRow, levels, scale, offset);
        });
        return true;
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
  /** Number of heads with rows in the order of {@link GgufArchitecture.isInterleaved}; null for a tensor without such rows. */
  readonly interleavedHeads: number | null;
  /** Number to subtract from every element: {@link GgufArchitecture.gainOffset} for norms; 0 for other tensors. */
  readonly gainOffset: number;
}

/** Returns the tensor of the file for a name in Hugging Face layout; undefined if the file does not have it. */
function findTensor(file: GgufFile, architecture: GgufArchitecture, keys: MetadataKeys, hubName: string): FoundTensor | undefined {
  const ggufName = ggufTensorName(hubName, architecture.parts);
  const tensor = ggufName === undefined ? undefined : file.tensors.get(ggufName.name);
  if (ggufName === undefined || tensor === undefined) return undefined;
  const isNorm = hubName.endsWith("norm.weight");
  return {
    tensor,
    interleavedHeads: architecture.isInterleaved ? headsOf(keys, ggufName.part) : null,
    gainOffset: isNorm ? architecture.gainOffset : 0,
  };
}

/** Returns the number of heads of a query or key projection; null for other parts. */
function headsOf(keys: MetadataKeys, part: string | undefined): number | null {
  if (part !== "self_attn.q_proj" && part !== "self_attn.k_proj") return null;
  const heads = keys.requireSameInAllLayers("attention.head_count");
  return part === "self_attn.q_proj" ? heads : (keys.sameInAllLayers("attention.head_count_kv") ?? heads);
}

/**
 * Returns a function from a row of a query or key projection in the file to its row in Hugging Face layout: within each head, row `2i` goes
 * to row `i` of the first half, and row `2i + 1` to row `i` of the second.
 */
function headRows(file: GgufFile, tensor: GgufTensor, heads: number): (row: number) => number {
  // A bias has one element per row.
  const rowLength = tensor.shape.length === 1 ? 1 : last(tensor.shape);
  const rowsPerHead = tensor.size / heads / rowLength;
  if (rowsPerHead % 2 !== 0)
    throw new DataError(
      `${file.label}: tensor "${tensor.name}": expected an even number of rows in each of ${heads} heads, got shape [${tensor.shape.join(", ")}]`,
    );
  return (row) => {
    const rowInHead = row % rowsPerHead;
    const half = rowInHead % 2;
    return row - rowInHead + half * (rowsPerHead / 2) + Math.floor(rowInHead / 2);
  };
}

/** Reads a query or key projection in the order of Hugging Face layout. */
async function readHeads(
  file: GgufFile,
  tensor: GgufTensor,
  heads: number,
  visit: (piece: Float32Array, firstElement: number) => void,
): Promise<void> {
  const headElements = tensor.size / heads;
  // A bias has one element per row.
  const rowLength = tensor.shape.length === 1 ? 1 : last(tensor.shape);
  const rowOf = headRows(file, tensor, heads);
  const head = new Float32Array(headElements);
  await file.readPieces(
    tensor,
    (piece, firstElement) => {
      // A piece consists of whole heads, because `headElements` is passed below.
      for (let start = 0; start < piece.length; start += headElements) {
        for (let row = 0; row * rowLength < headElements; row++) {
          const rowStart = start + row * rowLength;
          head.set(piece.subarray(rowStart, rowStart + rowLength), rowOf(row) * rowLength);
        }
        visit(head, firstElement + start);
      }
    },
    headElements,
  );
}
