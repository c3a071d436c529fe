/** Objects of one copy of the package in another, such as the copy that a CommonJS file loads. */
import { expect, test, vi } from "vitest";
import * as here from "../../src/base/trajectory/index.ts";

vi.resetModules();
const other = await import("../../src/base/trajectory/index.ts");

test("isInstance recognizes the objects of another copy of the package, and only objects of its class", () => {
  const builder = other.trajectory({ messages: [{ role: "user", content: "Reverse: abc" }] });
  const finished = builder.finish({ reward: 1 });
  const objects = [finished, builder, new other.TrajectoryGroup({ trajectories: [finished] }), {}, null, undefined, "text"];
  expect(finished).not.toBeInstanceOf(here.Trajectory);
  const recognized = ({ isInstance }: { readonly isInstance: (value: unknown) => boolean }) => objects.map((each) => isInstance(each));
  expect(recognized(here.Trajectory)).toEqual([true, false, false, false, false, false, false]);
  expect(recognized(here.TrajectoryBuilder)).toEqual([false, true, false, false, false, false, false]);
  expect(recognized(here.TrajectoryGroup)).toEqual([false, false, true, false, false, false, false]);
});
