/** Lowerings for the WebGPU execution provider of ONNX Runtime 1.30: operators without a kernel, or with a kernel that is not exact. */
import type { Attribute, Dim, DType, NodeSpec, Value } from "../graph.ts";
import type { LoweringTable } from "../lower.ts";
import { reduceSum } from "../ops/broadcast.ts";
import { add, cast, div, equal, exp, log, mul, sqrt, sub } from "../ops/elementwise.ts";
import { matmul } from "../ops/linear.ts";
import { reduceMax } from "../ops/reduce.ts";
import { reshape, transpose } from "../ops/shape.ts";

const int = (attribute: Attribute | undefined) => (attribute !== undefined && "int" in attribute ? Number(attribute.int) : 0);
const float = (attribute: Attribute | undefined, otherwise: number) =>
  attribute !== undefined && "float" in attribute ? attribute.float : otherwise;

/** Lowerings of the device `webgpu`. */
export const WEBGPU_LOWERINGS: LoweringTable = {
  // No kernel.
  "com.microsoft.FusedMatMul": ({ attributes }, [a, b]) => {
    const left = int(attributes["transA"]) === 1 ? swapLastTwo(a!) : a!;
    const right = int(attributes["transB"]) === 1 ? swapLastTwo(b!) : b!;
    const product = matmul(left, right);
    const scale = float(attributes["alpha"], 1);
    return [scale === 1 ? product : mul(product, product.graph.scalar(scale))];
  },

  // The kernel leaves the second output, the inverse standard deviation, unwritten.
  SimplifiedLayerNormalization: ({ attributes }, [x, gain], isUsed) => {
    if (!isUsed(1)) return null;
    const { graph } = x!;
    const axis = x!.shape.length - 1;
    const mean = mul(reduceSum(mul(x!, x!), [axis]), graph.scalar(1 / (x!.shape[axis] as number)));
    const inverse = div(graph.scalar(1), sqrt(add(mean, graph.scalar(float(attributes["epsilon"], 1e-5)))));
    return [mul(mul(x!, inverse), gain!), inverse];
  },

  // No kernel.
  LogSoftmax: (_, [x]) => {
    const axis = x!.shape.length - 1;
    const centered = sub(x!, reduceMax(x!, [axis]));
    return [sub(centered, log(reduceSum(exp(centered), [axis])))];
  },

  // ScatterElements with addition sums rows of equal index in no fixed order. Here each row becomes the old row plus the sum of all updates
  // with its index, by one product, so rows of equal index are equal, and the order in which they are written does not matter.
  "whetstone.ScatterAddRows": (_, [table, indices, updates]) => {
    const { graph } = table!;
    const [rows] = updates!.shape as [Dim, Dim];
    const record = (op: string, inputs: readonly Value[], shape: readonly Dim[], dtype: DType, attributes: NodeSpec["attributes"] = {}) =>
      graph.record({ op, inputs, attributes, outputs: [{ shape, dtype }] })[0]!;
    const ids = cast(indices!, "float32");
    const sums = matmul(cast(equal(reshape(ids, [rows, 1]), ids), "float32"), updates!);
    const changed = add(record("Gather", [table!, indices!], updates!.shape, "float32", { axis: { int: 0 } }), sums);
    return [record("ScatterND", [table!, reshape(indices!, [rows, 1]), changed], table!.shape, "float32")];
  },
};

function swapLastTwo(x: Value): Value {
  const rank = x.shape.length;
  return transpose(x, [...Array.from({ length: rank - 2 }, (_, i) => i), rank - 1, rank - 2]);
}
