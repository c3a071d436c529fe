import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import { FAMILIES, familyTests } from "../support/family-tests.ts";

familyTests(FAMILIES, { device: "cpu", newTrainer: () => new Trainer({ threads: 1 }), timeoutMs: 30_000 });
