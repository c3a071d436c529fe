import { describe, expect, it } from "vitest";
import * as dataset from "whetstone/dataset";
import * as root from "whetstone";

describe("public names", () => {
  it("of the root: changing them is a decision", () => {
    expect(Object.keys(root).sort()).toEqual([
      "ConnectionError", "HttpError", "Job", "JobCancelledError", "JobFailedError", "JobTimeoutError", "Model", "PreflightError", "ProtocolError", "Service",
      "TooManyExceptionsError", "Trajectory", "TrajectoryBuilder", "TrajectoryGroup", "WhetstoneError", "connect", "gatherTrajectoryGroups", "pollJob", "preflight",
      "streamTrajectoryGroups", "trajectory", "trajectoryGroups", "uploadDataset",
    ]);
  });

  it("of `whetstone/dataset`", () => {
    expect(Object.keys(dataset).sort()).toEqual(["readTrajectories", "uploadDataset", "writeChatJsonl", "writeTrajectories"]);
  });
});
