/** Serialized graphs. */
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { expect, test } from "vitest";
import * as g from "../../../../src/engine/onnx/graph/index.ts";
import { liveNodes } from "../../../../src/engine/onnx/graph/graph.ts";

/** Returns the contents of the length-delimited fields with a number. */
function fields(bytes: Uint8Array, number: number): Uint8Array[] {
  const reader = new BinaryReader(bytes);
  const found: Uint8Array[] = [];
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field === number && type === WireType.LengthDelimited) found.push(reader.bytes());
    else reader.skip(type, field);
  }
  return found;
}

const textOf = (bytes: Uint8Array | undefined) => new TextDecoder().decode(bytes);

test("state the shape of every intermediate float32 value, for the memory planner of the runtime", () => {
  const graph = new g.Graph();
  const x = graph.input("x", ["R", 8]);
  const [left, right] = g.split(g.matmul(x, graph.input("w", [8, 8])), 1, [4, 4]);
  graph.output("y", g.mul(g.exp(left!), right!));
  g.exp(x); // No output depends on it.
  const [model] = fields(g.writeOnnx(graph, "test"), 7);
  const shapes = fields(model!, 13).map((value) => {
    const [tensor] = fields(fields(value, 2)[0]!, 1);
    const dims = fields(fields(tensor!, 2)[0]!, 1).map(
      (dim) => textOf(fields(dim, 2)[0]) || new BinaryReader(dim.subarray(1)).int64().toString(),
    );
    return [textOf(fields(value, 1)[0]), dims.join()];
  });
  const expected = liveNodes(graph).flatMap(({ outputs }) => outputs.map(({ name, shape }) => [name, shape.join()]));
  expect(shapes).toEqual(expected);
  expect(expected.map(([, shape]) => shape)).toEqual(["R,8", "R,4", "R,4", "R,4", "R,4"]);
});
