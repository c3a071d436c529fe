/**
 * Layout of parameters. All parameters of a model are views into one flat Float32Array: the optimizer works on one vector, publishing
 * copies one array, and a graph input is a view without a copy.
 *
 * Matrices are stored as `[in, out]`, so that a forward product needs no transposition; files store `[out, in]`. Query, key and value
 * projections are fused into one matrix, because narrow products are slower and their last bits depend on the thread count. In files
 * they are separate tensors.
 */
import { InternalError } from "../../../base/errors.ts";
import type { ModelConfig } from "./config.ts";
import { first, last } from "../../../base/util/values.ts";

/**
 * Tensor in a weight file, and its part of a parameter: columns `[start, start + width)` of a matrix, elements of a vector, or all of the
 * embedding.
 */
export interface FileTensor {
  readonly name: string;
  readonly start: number;
  readonly width: number;
}

/** Parameter in the flat vector. */
export interface Parameter {
  /** Name of the graph input. */
  readonly name: string;
  /** Shape: `[in, out]` for a matrix, `[V, H]` for the embedding, `[H]`, `[d]` or `[heads · d]` for a gain, `[out]` for a bias. */
  readonly shape: readonly number[];
  /** Index of the first element in the flat vector. */
  readonly offset: number;
  readonly size: number;
  readonly kind: "matrix" | "embedding" | "gain" | "bias";
  /** Tensors that the parameter consists of in weight files; several for a fused matrix. */
  readonly files: readonly FileTensor[];
}

/** Layout of a flat vector. */
export interface Layout {
  readonly parameters: readonly Parameter[];
  /** End of the elements `[0, decayed)` with weight decay; gains and biases follow and have none. */
  readonly decayed: number;
  /** Length of the flat vector, a multiple of {@link BLOCK}; the padding at the end is always zero. */
  readonly length: number;
}

/** Number of elements per block in sums over the flat vector. */
export const BLOCK = 1024;

/** Parameter without its position in the flat vector. */
type Draft = Omit<Parameter, "offset" | "size">;

/** Assigns offsets in the given order, with matrices and the embedding first. */
export function layOut(drafts: readonly Draft[]): Layout {
  const ordered = [...drafts.filter(isDecayed), ...drafts.filter((draft) => !isDecayed(draft))];
  let offset = 0;
  let decayed = 0;
  const parameters = ordered.map((draft): Parameter => {
    const size = draft.shape.reduce((a, b) => a * b, 1);
    const parameter = { ...draft, offset, size };
    offset += size;
    if (isDecayed(draft)) decayed = offset;
    return parameter;
  });
  return { parameters, decayed, length: Math.ceil(offset / BLOCK) * BLOCK };
}

/** Whether weight decay applies to a parameter. */
function isDecayed({ kind }: Draft): boolean {
  return kind === "matrix" || kind === "embedding";
}

/** Linear layer of the transformer: one matrix, and the parts of it that are separate tensors in weight files and adapters. */
export interface LinearSpec {
  readonly name: string;
  readonly inputSize: number;
  readonly hasBias: boolean;
  /** Parts in the order of the matrix's columns; `file` is the name of the module in weight files. */
  readonly parts: readonly { readonly file: string; readonly outputSize: number }[];
}

/** Linear layers of one transformer layer. */
export interface LayerLinears {
  readonly qkv: LinearSpec;
  readonly output: LinearSpec;
  /** Gate and up projections, or the one that computes both: its first F columns are the gate's. */
  readonly inner: readonly [LinearSpec, LinearSpec] | readonly [LinearSpec];
  readonly down: LinearSpec;
}

/** Returns the linear layers of one transformer layer. */
export function layerLinears(config: ModelConfig, layer: number): LayerLinears {
  const { hiddenSize: H, innerSize: F, heads, kvHeads, headSize: d, hasMlpBias, modules } = config;
  const attention = `model.layers.${layer}.self_attn`;
  const mlp = `model.layers.${layer}.${modules.mlp}`;
  const mlpLinear = (name: string, file: string, [inputSize, outputSize]: readonly [number, number]): LinearSpec => ({
    name: `layer${layer}_${name}`,
    inputSize,
    hasBias: hasMlpBias,
    parts: [{ file: `${mlp}.${file}`, outputSize }],
  });
  return {
    qkv: {
      name: `layer${layer}_qkv`,
      inputSize: H,
      hasBias: config.attentionBias !== "none",
      parts:
        modules.fusedQkv === null
          ? [
              { file: `${attention}.q_proj`, outputSize: heads * d },
              { file: `${attention}.k_proj`, outputSize: kvHeads * d },
              { file: `${attention}.v_proj`, outputSize: kvHeads * d },
            ]
          : [{ file: `${attention}.${modules.fusedQkv}`, outputSize: (heads + 2 * kvHeads) * d }],
    },
    output: {
      name: `layer${layer}_o`,
      inputSize: heads * d,
      hasBias: config.attentionBias === "all",
      parts: [{ file: `${attention}.o_proj`, outputSize: H }],
    },
    inner:
      modules.fusedGateUp === null
        ? [mlpLinear("gate", "gate_proj", [H, F]), mlpLinear("up", "up_proj", [H, F])]
        : [mlpLinear("gateup", modules.fusedGateUp, [H, 2 * F])],
    down: mlpLinear("down", modules.down, [F, H]),
  };
}

/** Returns all linear layers of the model, layer by layer, in order of application. */
export function allLinears(config: ModelConfig): LinearSpec[] {
  return Array.from({ length: config.layers }, (_, layer) => {
    const { qkv, output, inner, down } = layerLinears(config, layer);
    return [qkv, output, ...inner, down];
  }).flat();
}

/**
 * Names of a layer's norms as graph inputs, without the layer: of the inputs of attention (`norm1`) and feed-forward layer (`norm2`), of
 * their outputs (`onorm`, `downnorm`), and of queries and keys (`qnorm`, `knorm`).
 */
export type NormName = "norm1" | "onorm" | "norm2" | "downnorm" | "qnorm" | "knorm";

/** Returns the name of a norm's gain as graph input. */
export function normName(layer: number, norm: NormName): string {
  return `layer${layer}_${norm}`;
}

/**
 * Names in weight files of the norms of a placement, without the norms of queries and keys. `post_attention_layernorm` is applied to the
 * output of attention in one placement, and to the input of the feed-forward layer in another.
 */
const NORM_FILES: Readonly<Record<ModelConfig["norms"], Readonly<Partial<Record<NormName, string>>>>> = {
  before: { norm1: "input_layernorm", norm2: "post_attention_layernorm" },
  after: { onorm: "post_attention_layernorm", downnorm: "post_feedforward_layernorm" },
  both: {
    norm1: "input_layernorm",
    onorm: "post_attention_layernorm",
    norm2: "pre_feedforward_layernorm",
    downnorm: "post_feedforward_layernorm",
  },
};

/** Returns the layout of all parameters of a model. */
export function baseLayout(config: ModelConfig): Layout {
  const { hiddenSize: H, vocabularySize: V } = config;
  const gain = (name: string, file: string, width = H): Draft => ({
    name,
    shape: [width],
    kind: "gain",
    files: [{ name: file, start: 0, width }],
  });
  const drafts: Draft[] = [
    { name: "embedding", shape: [V, H], kind: "embedding", files: [{ name: "model.embed_tokens.weight", start: 0, width: H }] },
  ];
  for (const linear of allLinears(config)) drafts.push(...linearDrafts(linear));
  if (!config.isTied) drafts.push({ name: "head", shape: [H, V], kind: "matrix", files: [{ name: "lm_head.weight", start: 0, width: V }] });
  for (let layer = 0; layer < config.layers; layer++) {
    for (const [norm, file] of Object.entries(NORM_FILES[config.norms]))
      drafts.push(gain(normName(layer, norm as NormName), `model.layers.${layer}.${file}.weight`));
    if (config.queryKeyNorm === "none") continue;
    for (const [part, heads] of [
      ["q", config.heads],
      ["k", config.kvHeads],
    ] as const) {
      const width = config.queryKeyNorm === "all" ? heads * config.headSize : config.headSize;
      drafts.push(gain(normName(layer, `${part}norm`), `model.layers.${layer}.self_attn.${part}_norm.weight`, width));
    }
  }
  drafts.push(gain("norm", "model.norm.weight"));
  return layOut(drafts);
}

/** Returns the matrix of a linear layer, and its bias if it has one. */
function linearDrafts(linear: LinearSpec): Draft[] {
  let outputSize = 0;
  const ranges = linear.parts.map((part) => {
    const range = { file: part.file, start: outputSize, width: part.outputSize };
    outputSize += part.outputSize;
    return range;
  });
  const files = (kind: "weight" | "bias") => ranges.map(({ file, ...range }) => ({ name: `${file}.${kind}`, ...range }));
  const matrix: Draft = { name: linear.name, shape: [linear.inputSize, outputSize], kind: "matrix", files: files("weight") };
  if (!linear.hasBias) return [matrix];
  return [matrix, { name: biasName(linear), shape: [outputSize], kind: "bias", files: files("bias") }];
}

/**
 * Every piece but the last has a multiple of this number of rows, if so many fit: a device cuts a sum over the rows into as many as 32 parts,
 * and kernels read four elements at a time.
 */
const PIECE_STEP = 128;
/** Otherwise a multiple of this number. */
const MIN_PIECE_STEP = 4;

/** Returns the name of a piece of a parameter. @param index - Index of the piece, from 0. */
export function pieceName(parameter: string, index: number): string {
  return `${parameter}_piece${index}`;
}

/**
 * Cuts an embedding or output head of more than `maxBytes` in float32 into pieces of consecutive rows. Returns any other parameter whole.
 *
 * The rows of a separate head `[H, V]` are its inputs, so a graph adds the products of its pieces. Every piece but the last has at least
 * {@link MIN_PIECE_STEP} rows, even above `maxBytes`.
 */
export function cutParameter(parameter: Parameter, maxBytes: number): Parameter[] {
  const { name, shape, offset, size, kind } = parameter;
  if (Float32Array.BYTES_PER_ELEMENT * size <= maxBytes || !(kind === "embedding" || name === "head")) return [parameter];
  const [rows, width] = shape as [number, number];
  /** Returns the max rows of a piece that are a multiple of a number; 0 if that many rows are too large. */
  const maxRows = (multiple: number) => Math.floor(maxBytes / (Float32Array.BYTES_PER_ELEMENT * width * multiple)) * multiple;
  const pieceRows = maxRows(PIECE_STEP) || maxRows(MIN_PIECE_STEP) || MIN_PIECE_STEP;
  return Array.from({ length: Math.ceil(rows / pieceRows) }, (_, index) => {
    const [start, end] = [index * pieceRows, Math.min(rows, (index + 1) * pieceRows)];
    const pieceShape = [end - start, width];
    return { ...parameter, name: pieceName(name, index), shape: pieceShape, offset: offset + start * width, size: (end - start) * width };
  });
}

/**
 * Returns the layout of the same flat vector with the pieces of {@link cutParameter} as parameters. A piece has the files of its whole
 * parameter, so weights are read and written with the original layout.
 */
export function cutLayout(layout: Layout, maxBytes: number): Layout {
  return { ...layout, parameters: layout.parameters.flatMap((parameter) => cutParameter(parameter, maxBytes)) };
}

/** Returns the graph input name of a linear layer's bias. */
export function biasName(linear: LinearSpec): string {
  return `${linear.name}_bias`;
}

/** Low-rank adapter. */
export interface Adapter {
  readonly rank: number;
  readonly alpha: number;
}

/** Returns the graph input names of an adapter's two matrices for one part of a linear layer. */
export function adapterNames(linear: LinearSpec, part: number): { a: string; b: string } {
  return { a: `${linear.name}_${part}_a`, b: `${linear.name}_${part}_b` };
}

/**
 * Returns the layout of an adapter on every linear layer: `A [in, rank]` and `B [rank, out]` per part. Tensors have PEFT names, such as
 * `base_model.model.<module>.lora_A.weight`.
 */
export function adapterLayout(config: ModelConfig, rank: number): Layout {
  const drafts = allLinears(config).flatMap((linear) =>
    linear.parts.flatMap((part, index): Draft[] => {
      const names = adapterNames(linear, index);
      const file = (matrix: "A" | "B", width: number) => [{ name: `base_model.model.${part.file}.lora_${matrix}.weight`, start: 0, width }];
      return [
        { name: names.a, shape: [linear.inputSize, rank], kind: "matrix", files: file("A", rank) },
        { name: names.b, shape: [rank, part.outputSize], kind: "matrix", files: file("B", part.outputSize) },
      ];
    }),
  );
  return layOut(drafts);
}

/** Returns the shape in a file of a part of `parameter` with `width` columns or elements. */
export function fileShape(parameter: Parameter, width: number): number[] {
  if (parameter.kind === "embedding") return [...parameter.shape];
  return parameter.kind === "matrix" ? [width, first(parameter.shape)] : [width];
}

/** Returns a view of one parameter in a flat vector. */
export function viewOf(flat: Float32Array, parameter: Parameter): Float32Array {
  return flat.subarray(parameter.offset, parameter.offset + parameter.size);
}

/** Returns the name in weight files of the tensor that contains element `index` of a flat vector. @throws for an element between tensors. */
export function tensorAt({ parameters }: Layout, index: number): string {
  const parameter = parameters.find(({ offset, size }) => index >= offset && index < offset + size);
  if (parameter === undefined) throw new InternalError(`No tensor holds element ${index}`);
  const { files, shape, offset, kind } = parameter;
  // An embedding is one tensor; other parameters are split along the last dimension.
  const column = kind === "embedding" ? 0 : (index - offset) % last(shape);
  return files.find(({ start, width }) => column >= start && column < start + width)!.name;
}
