/**
 * AdamW over spans of flat vectors in one pass over memory, as a WebAssembly module with 128-bit SIMD.
 *
 * The update has sixteen elementwise operations. A graph runs each as a separate pass; this kernel runs all sixteen while four elements are
 * in registers. Every operation is the IEEE 754 operation of the formula, in the formula's order, so each element is bit-identical to the
 * formula in float32.
 */

/** Scalars of one step; see {@link AdamKernel} for the formula. */
export interface AdamScalars {
  readonly clip: number;
  readonly beta1: number;
  /** `1 − β₁`. */
  readonly oneMinusBeta1: number;
  readonly beta2: number;
  /** `1 − β₂`. */
  readonly oneMinusBeta2: number;
  /** `rate·decay`. */
  readonly shrink: number;
  /** `rate / (1 − β₁ᵗ)`. */
  readonly scaledRate: number;
  /** `√(1 − β₂ᵗ)`. */
  readonly correction: number;
  readonly epsilon: number;
}

/** Names of the scalars, in the order of the kernel's arguments after the number of bytes. */
export const SCALARS = [
  "clip",
  "beta1",
  "oneMinusBeta1",
  "beta2",
  "oneMinusBeta2",
  "shrink",
  "scaledRate",
  "correction",
  "epsilon",
] as const satisfies readonly (keyof AdamScalars)[];

/** `WebAssembly` global of Node.js, with types for the members used here; the type definitions of Node.js lack it. */
const Wasm = (globalThis as unknown as { readonly WebAssembly: WasmGlobal }).WebAssembly;

interface WasmGlobal {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => {
    readonly exports: { readonly memory: { readonly buffer: ArrayBuffer }; readonly update: (bytes: number, ...scalars: number[]) => void };
  };
}

/** Elements per call: four vectors of this length stay in the L1 cache. */
const SPAN = 2048;
const SPAN_BYTES = 4 * SPAN;

/** Byte offset of each vector's span in the module's memory. */
const OFFSETS = { p: 0, m: SPAN_BYTES, v: 2 * SPAN_BYTES, g: 3 * SPAN_BYTES };

// Instructions by their names in the specification's text format. https://webassembly.github.io/spec/core/binary/instructions.html
// Numbers are in LEB128. `i32.const` takes its signed form, which equals the unsigned one below 64.
const unsigned = (value: number): number[] => (value < 128 ? [value] : [(value & 127) | 128, ...unsigned(value >>> 7)]);
const simd = (opcode: number) => [0xfd, ...unsigned(opcode)];
const get = (local: number) => [0x20, ...unsigned(local)];
const set = (local: number) => [0x21, ...unsigned(local)];
const tee = (local: number) => [0x22, ...unsigned(local)];
const i32 = { const: (value: number) => [0x41, ...unsigned(value)], add: [0x6a], ltU: [0x49] };
const f32x4 = { splat: simd(0x13), sqrt: simd(0xe3), add: simd(0xe4), sub: simd(0xe5), mul: simd(0xe6), div: simd(0xe7) };
const memoryAt = (offset: number) => [4, ...unsigned(offset)];
const load = (index: number, offset: number) => [...get(index), ...simd(0x00), ...memoryAt(offset)];
const store = (index: number, offset: number, value: readonly number[]) => [...get(index), ...value, ...simd(0x0b), ...memoryAt(offset)];
const loop = (body: readonly number[]) => [0x03, 0x40, ...body, 0x0b];
const branchIf = [0x0d, 0];
const I32 = 0x7f;
const F32 = 0x7d;
const V128 = 0x7b;

/** Encodes the function body `(bytes, …scalars) → ()`, which updates the spans in memory from byte 0 to `bytes`. */
function updateBody(): number[] {
  // Indices of the arguments (`bytes`, the scalars) and of the locals (the scalars as vectors, the byte position, and g, m, v, p).
  const bytes = 0;
  const scalar = (name: (typeof SCALARS)[number]) => 1 + SCALARS.indexOf(name);
  const vector = (name: (typeof SCALARS)[number]) => SCALARS.length + scalar(name);
  const index = 1 + 2 * SCALARS.length;
  const [g, m, v, p] = [index + 1, index + 2, index + 3, index + 4];
  const broadcast = (name: (typeof SCALARS)[number]) => get(vector(name));
  const splats = SCALARS.flatMap((name) => [...get(scalar(name)), ...f32x4.splat, ...set(vector(name))]);
  const step = [
    ...[...load(index, OFFSETS.g), ...broadcast("clip"), ...f32x4.mul, ...set(g)],
    // m ← β₁·m + (1 − β₁)·g
    ...[...load(index, OFFSETS.m), ...broadcast("beta1"), ...f32x4.mul],
    ...[...get(g), ...broadcast("oneMinusBeta1"), ...f32x4.mul, ...f32x4.add, ...set(m)],
    // v ← β₂·v + (1 − β₂)·g²
    ...[...load(index, OFFSETS.v), ...broadcast("beta2"), ...f32x4.mul],
    ...[...get(g), ...get(g), ...f32x4.mul, ...broadcast("oneMinusBeta2"), ...f32x4.mul, ...f32x4.add, ...set(v)],
    // p ← (p − shrink·p) − scaledRate · m / (√v / correction + ε)
    ...[...load(index, OFFSETS.p), ...tee(p), ...get(p), ...broadcast("shrink"), ...f32x4.mul, ...f32x4.sub],
    ...[...get(m), ...get(v), ...f32x4.sqrt, ...broadcast("correction"), ...f32x4.div, ...broadcast("epsilon"), ...f32x4.add, ...f32x4.div],
    ...[...broadcast("scaledRate"), ...f32x4.mul, ...f32x4.sub, ...set(p)],
    ...store(index, OFFSETS.p, get(p)),
    ...store(index, OFFSETS.m, get(m)),
    ...store(index, OFFSETS.v, get(v)),
  ];
  const next = [...get(index), ...i32.const(16), ...i32.add, ...tee(index), ...get(bytes), ...i32.ltU, ...branchIf];
  // Three groups of locals after the arguments: the scalars as vectors, the byte position, and g, m, v, p.
  const locals = [3, ...[SCALARS.length, V128], ...[1, I32], ...[4, V128]];
  return [...locals, ...splats, ...loop([...step, ...next]), 0x0b];
}

/** Encodes the module: one memory page, exported as `memory`, and the function, exported as `update`. */
function moduleBytes(): Uint8Array {
  const sized = (content: readonly number[]) => [...unsigned(content.length), ...content];
  const section = (id: number, content: readonly number[]) => [id, ...sized(content)];
  const name = (text: string) => sized([...text].map((letter) => letter.charCodeAt(0)));
  const type = [0x60, ...sized([I32, ...SCALARS.map(() => F32)]), 0];
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, [1, ...type]),
    ...section(3, [1, 0]),
    ...section(5, [1, 0, 1]),
    ...section(7, [2, ...name("memory"), 2, 0, ...name("update"), 0, 0]),
    ...section(10, [1, ...sized(updateBody())]),
  ]);
}

/**
 * Kernel of one AdamW step, element by element:
 *
 * ```
 * g ← clip · g
 * m ← β₁·m + (1 − β₁)·g          v ← β₂·v + (1 − β₂)·g²
 * p ← p − rate·decay·p − (rate / (1 − β₁ᵗ)) · m / (√v / √(1 − β₂ᵗ) + ε)
 * ```
 *
 * @source Loshchilov and Hutter 2019, arXiv:1711.05101; algebraically the update of torch.optim.AdamW.
 */
export class AdamKernel {
  readonly #update: (bytes: number, ...scalars: number[]) => void;
  readonly #spans: Readonly<Record<keyof typeof OFFSETS, Float32Array>>;

  constructor() {
    const { memory, update } = new Wasm.Instance(new Wasm.Module(moduleBytes())).exports;
    const span = (name: keyof typeof OFFSETS) => new Float32Array(memory.buffer, OFFSETS[name], SPAN);
    this.#update = update;
    this.#spans = { p: span("p"), m: span("m"), v: span("v"), g: span("g") };
  }

  /**
   * Updates the elements `[start, end)` of the parameters `p` and moments `m` and `v` in place, from the gradient `g`. All four vectors
   * have the same length.
   */
  update(vectors: Readonly<Record<keyof typeof OFFSETS, Float32Array>>, start: number, end: number, scalars: AdamScalars): void {
    const values = SCALARS.map((name) => scalars[name]);
    const { p, m, v, g } = this.#spans;
    for (let from = start; from < end; from += SPAN) {
      const to = Math.min(from + SPAN, end);
      p.set(vectors.p.subarray(from, to));
      m.set(vectors.m.subarray(from, to));
      v.set(vectors.v.subarray(from, to));
      g.set(vectors.g.subarray(from, to));
      // Whole vectors of four: elements past the end are computed but not copied back.
      const count = to - from;
      this.#update(Math.ceil(count / 4) * 16, ...values);
      vectors.p.set(count === SPAN ? p : p.subarray(0, count), from);
      vectors.m.set(count === SPAN ? m : m.subarray(0, count), from);
      vectors.v.set(count === SPAN ? v : v.subarray(0, count), from);
    }
  }
}
