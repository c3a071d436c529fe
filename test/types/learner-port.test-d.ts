/** The learner's shapes are those of the engine's port, though neither room imports the other. Checked by the compiler. */

import { expectTypeOf } from "vitest";
import type { AdamParams as PortAdam, LossSpec as PortLoss, Row } from "../../src/engine/port.ts";
import type { AdamParams, LossSpec, TrainingRow } from "../../src/learner/index.ts";

expectTypeOf<TrainingRow>().toExtend<Row>();
expectTypeOf<Row>().toExtend<TrainingRow>();
expectTypeOf<LossSpec>().toExtend<PortLoss>();
expectTypeOf<PortLoss>().toExtend<LossSpec>();
expectTypeOf<AdamParams>().toExtend<PortAdam>();
expectTypeOf<keyof PortAdam>().toEqualTypeOf<keyof AdamParams>();
