/** Serialization of a graph in the ONNX file format. */
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { type Attribute, type ConstantData, type DType, type Graph, liveNodes, type Node, standIns, type Value } from "./graph.ts";
import { itemAt } from "../../../base/util/values.ts";

/** Version of the ONNX file format. */
const IR_VERSION = 10;
/** Version of the ONNX operator set that the ops are written for. */
const OPSET = 21;

/** Value of `TensorProto.DataLocation` for external data. */
const EXTERNAL = 1;

/** Codes of the element types in `TensorProto.DataType`. */
const ELEMENT_TYPE: Record<DType, number> = { float32: 1, uint8: 2, int32: 6, int64: 7, bool: 9, float16: 10 };

/** No inputs. */
const NONE: ReadonlySet<string> = new Set();

/**
 * Serializes a graph as an ONNX model. Nodes that no output depends on are omitted, so an op may record more than its caller uses.
 *
 * The model states the shape of every intermediate float32 value. The runtime infers only some of them, and its planner compares each value
 * of unknown shape with all later ones: compiling the gradient graph of 30 layers took six times as long. Integers are left out, because a
 * lowering may compute them in another type.
 *
 * Field numbers are defined in `onnx.proto3`.
 *
 * @param constants - Names of the inputs that become initializers of the model. Their values are external data: the file with the name of
 *   the input. @default none
 * @returns Bytes of a `ModelProto`, ready for an inference session.
 * @source https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3
 */
export function writeOnnx(graph: Graph, name: string, constants = NONE): Uint8Array {
  const model = new BinaryWriter();
  model.tag(1, WireType.Varint).int64(IR_VERSION);
  model.tag(2, WireType.LengthDelimited).string("whetstone");
  message(model, 7, (writer) => writeGraph(writer, graph, name, constants));
  for (const [domain, version] of [
    ["", OPSET],
    ["com.microsoft", 1],
  ] as const) {
    message(model, 8, (writer) => {
      writer.tag(1, WireType.LengthDelimited).string(domain);
      writer.tag(2, WireType.Varint).int64(version);
    });
  }
  return model.finish();
}

/** Names of values of the surrounding graph, by their stand-ins in a body. */
type OuterNames = ReadonlyMap<Value, string>;

/** Writes the fields of a `GraphProto`. */
function writeGraph(
  writer: BinaryWriter,
  graph: Graph,
  name: string,
  constants: ReadonlySet<string>,
  outerNames: OuterNames = new Map(),
): void {
  const nodes = liveNodes(graph);
  const used = new Set(nodes.flatMap((node) => node.inputs));
  for (const value of graph.outputs.values()) used.add(value);
  const nameOf = (value: Value) => outerNames.get(value) ?? graph.directNames.get(value) ?? value.name;
  for (const node of nodes) message(writer, 1, (inner) => writeNode(inner, node, nameOf));
  // Each other output gets the requested name through an Identity node, because the value may have another name.
  for (const [output, value] of graph.outputs)
    if (nameOf(value) !== output) message(writer, 1, (inner) => writeAlias(inner, nameOf(value), output));
  writer.tag(2, WireType.LengthDelimited).string(name);
  for (const [value, data] of graph.constants) if (used.has(value)) message(writer, 5, (inner) => writeTensor(inner, value, data));
  for (const input of graph.inputs) {
    if (!used.has(input)) continue;
    if (constants.has(input.name)) message(writer, 5, (inner) => writeExternalTensor(inner, input));
    else message(writer, 11, (inner) => writeValueInfo(inner, input.name, input));
  }
  for (const [output, value] of graph.outputs) message(writer, 12, (inner) => writeValueInfo(inner, output, value));
  for (const value of nodes.flatMap((node) => node.outputs))
    if (value.dtype === "float32" && !graph.directNames.has(value))
      message(writer, 13, (inner) => writeValueInfo(inner, value.name, value));
}

/** Writes a nested message; `body` writes its fields. */
function message(writer: BinaryWriter, field: number, body: (writer: BinaryWriter) => void): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  body(writer);
  writer.join();
}

function writeNode(writer: BinaryWriter, node: Node, nameOf: (value: Value) => string): void {
  const captured = standIns(node.attributes);
  const operands = node.inputs.length - captured.length;
  const outerNames = new Map(captured.map((standIn, i) => [standIn, nameOf(itemAt(node.inputs, operands + i))]));
  for (const input of node.inputs.slice(0, operands)) writer.tag(1, WireType.LengthDelimited).string(nameOf(input));
  for (const output of node.outputs) writer.tag(2, WireType.LengthDelimited).string(nameOf(output));
  writer.tag(4, WireType.LengthDelimited).string(node.op);
  for (const [name, attribute] of Object.entries(node.attributes))
    message(writer, 5, (inner) => writeAttribute(inner, name, attribute, outerNames));
  if (node.domain !== "") writer.tag(7, WireType.LengthDelimited).string(node.domain);
}

function writeAlias(writer: BinaryWriter, input: string, output: string): void {
  writer.tag(1, WireType.LengthDelimited).string(input);
  writer.tag(2, WireType.LengthDelimited).string(output);
  writer.tag(4, WireType.LengthDelimited).string("Identity");
}

function writeAttribute(writer: BinaryWriter, name: string, attribute: Attribute, outerNames: OuterNames): void {
  const type = (code: number) => writer.tag(20, WireType.Varint).int32(code);
  writer.tag(1, WireType.LengthDelimited).string(name);
  if ("float" in attribute) {
    writer.tag(2, WireType.Bit32).float(attribute.float);
    type(1);
  } else if ("int" in attribute) {
    writer.tag(3, WireType.Varint).int64(attribute.int);
    type(2);
  } else if ("string" in attribute) {
    writer.tag(4, WireType.LengthDelimited).string(attribute.string);
    type(3);
  } else if ("body" in attribute) {
    message(writer, 6, (body) => writeGraph(body, attribute.body, name, NONE, outerNames));
    type(5);
  } else {
    for (const value of attribute.ints) writer.tag(8, WireType.Varint).int64(value);
    type(7);
  }
}

function writeTensor(writer: BinaryWriter, value: Value, data: ConstantData): void {
  writeTensorHead(writer, value);
  writer.tag(9, WireType.LengthDelimited).bytes(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
}

/** Writes a tensor whose data is the external file with its name. */
function writeExternalTensor(writer: BinaryWriter, value: Value): void {
  writeTensorHead(writer, value);
  message(writer, 13, (entry) => {
    entry.tag(1, WireType.LengthDelimited).string("location");
    entry.tag(2, WireType.LengthDelimited).string(value.name);
  });
  writer.tag(14, WireType.Varint).int32(EXTERNAL);
}

/** Writes shape, element type and name of a tensor. */
function writeTensorHead(writer: BinaryWriter, { shape, dtype, name }: Value): void {
  for (const dim of shape) writer.tag(1, WireType.Varint).int64(dim as number);
  writer.tag(2, WireType.Varint).int32(ELEMENT_TYPE[dtype]);
  writer.tag(8, WireType.LengthDelimited).string(name);
}

function writeValueInfo(writer: BinaryWriter, name: string, value: Value): void {
  writer.tag(1, WireType.LengthDelimited).string(name);
  message(writer, 2, (type) => {
    message(type, 1, (tensor) => {
      tensor.tag(1, WireType.Varint).int32(ELEMENT_TYPE[value.dtype]);
      message(tensor, 2, (shape) => {
        for (const dim of value.shape) {
          message(shape, 1, (entry) => {
            if (typeof dim === "number") entry.tag(1, WireType.Varint).int64(dim);
            else entry.tag(2, WireType.LengthDelimited).string(dim);
          });
        }
      });
    });
  });
}
