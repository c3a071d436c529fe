import { expect, test } from "vitest";
import type { Parameter } from "../../../../src/engine/onnx/model/parameters.ts";
import { packPiece } from "../../../../src/engine/onnx/model/weights.ts";

test.each([
  [5, 23, 0, 23],
  [5, 23, 3, 11],
  [64, 40, 8, 32],
  [1, 19, 2, 17],
  [7, 9, 8, 1],
])(
  "a tensor of a matrix [%i, %i] is transposed to its columns from %i on, %i of them, in pieces of any length",
  (rows, columns, start, width) => {
    const parameter: Parameter = { name: "w", kind: "matrix", shape: [rows, columns], offset: 0, size: rows * columns, files: [] };
    const tensor = Float32Array.from({ length: rows * width }, (_, i) => i + 1);
    const expected = Array.from({ length: rows * columns }, (_, i) => {
      const [row, column] = [Math.floor(i / columns), (i % columns) - start];
      return column >= 0 && column < width ? tensor[column * rows + row]! : 0;
    });
    for (const length of [1, 2, rows - 1, rows, rows + 1, 3 * rows + 2, 8 * rows, 17 * rows + 1, tensor.length]) {
      const view = new Float32Array(rows * columns);
      for (let first = 0; first < tensor.length; first += Math.max(1, length))
        packPiece(tensor.subarray(first, first + Math.max(1, length)), first, parameter, view, { name: "w", start, width });
      expect(Array.from(view), `pieces of ${length}`).toEqual(expected);
    }
  },
);
