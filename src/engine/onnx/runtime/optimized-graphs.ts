/**
 * Cache of optimized graphs. The runtime's graph optimizations take three quarters of the compilation of a large graph, and the graphs of a
 * large model are compiled again whenever their memory was needed in between. So a large graph is stored as the runtime optimized it, and
 * compiled from there with the optimizations off.
 */
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { InferenceSession } from "onnxruntime-node";
import { Lru } from "../../../base/util/lru.ts";
import { first } from "../../../base/util/values.ts";

/** Min bytes of a serialized graph whose optimized form is kept: smaller ones compile within some tens of milliseconds. */
const MIN_BYTES = 2 ** 16;
/** Max bytes of all optimized graphs of a thread. The gradient graph of a model with 30 layers and adapters has 1 MB. */
const MAX_BYTES = 2 ** 24;

/** Optimized graphs of this thread, by the hash of the graph and of the options of its session. */
const optimized = new Lru<string, Uint8Array>({ maxWeight: MAX_BYTES });

/** Function that creates a session from a serialized graph. */
type CreateSession = (graph: Uint8Array, options: InferenceSession.SessionOptions) => Promise<InferenceSession>;

/**
 * Creates a session, from the optimized graph if an equal graph was compiled before with the same options. Both sessions compute the same
 * bits.
 *
 * @param graph - Serialized graph without external data.
 * @param options - Options of the session, with all optimizations on.
 */
export async function createOptimized(
  create: CreateSession,
  graph: Uint8Array,
  options: InferenceSession.SessionOptions,
): Promise<InferenceSession> {
  if (graph.length < MIN_BYTES) return create(graph, options);
  const key = createHash("sha256").update(JSON.stringify(options)).update(graph).digest("base64");
  const known = optimized.get(key);
  if (known !== undefined) return create(known, { ...options, graphOptimizationLevel: "disabled" });
  const directory = await mkdtemp(join(tmpdir(), "whetstone-graph-")).catch(() => null);
  // Without a directory for temporary files, each compilation optimizes the graph.
  if (directory === null) return create(graph, options);
  try {
    const file = join(directory, "optimized.onnx");
    const session = await create(graph, { ...options, optimizedModelFilePath: file });
    const bytes = await readFile(file).catch(() => null);
    if (bytes !== null) optimized.set(key, withNodesReversed(bytes), bytes.length);
    return session;
  } catch {
    // The file cannot be written, such as on a full disk; or the graph is invalid, which this call reports.
    return await create(graph, options);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Number of the field `ModelProto.graph`. */
const GRAPH = 7;
/** Number of the field `GraphProto.node`. */
const NODE = 1;

/**
 * Returns a model with the nodes of its graph in reverse order. The runtime writes nodes in the order in which it runs them, and runs the
 * inputs of a node in the reverse order of their appearance in a model. So the session of the reversed model runs them in the same order, on
 * which the memory of a run depends: the first session dequantizes a matrix directly before its product, see `runCopiesLate`.
 */
function withNodesReversed(model: Uint8Array): Uint8Array {
  const fields = fieldsOf(model);
  const graph = fieldsOf(first(fields.filter(({ number }) => number === GRAPH)).content);
  const isNode = ({ number }: Field) => number === NODE;
  const reversed = [...graph.filter(isNode).reverse(), ...graph.filter((field) => !isNode(field))];
  const others = fields.filter(({ number }) => number !== GRAPH);
  const writer = new BinaryWriter();
  for (const { whole } of others) writer.raw(whole);
  return writer
    .tag(GRAPH, WireType.LengthDelimited)
    .bytes(Buffer.concat(reversed.map(({ whole }) => whole)))
    .finish();
}

/** Field of a serialized message. */
interface Field {
  readonly number: number;
  /** Bytes of the field, its number included. */
  readonly whole: Uint8Array;
  /** Bytes of its value; empty unless it is a string, bytes or a message. */
  readonly content: Uint8Array;
}

/** Returns the fields of a serialized message in their order. */
function fieldsOf(message: Uint8Array): Field[] {
  const reader = new BinaryReader(message);
  const fields: Field[] = [];
  while (reader.pos < reader.len) {
    const start = reader.pos;
    const [number, type] = reader.tag();
    const content = type === WireType.LengthDelimited ? reader.bytes() : new Uint8Array();
    if (type !== WireType.LengthDelimited) reader.skip(type, number);
    fields.push({ number, whole: message.subarray(start, reader.pos), content });
  }
  return fields;
}
