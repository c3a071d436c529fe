/** Entry point of the thread that inspects base models. The thread loads no native code, so it can be terminated at any time. */
import { parentPort } from "node:worker_threads";
import { loadTokenizer } from "../../../text/tokenizer/index.ts";
import { readModelConfig } from "../model/config.ts";
import { verifyWeights } from "../model/weights.ts";
import { describeError, type SentError } from "../../../base/util/worker-rpc.ts";

/** Message to the thread. */
export interface InspectionRequest {
  readonly directory: string;
  /** Whether the values of the weights are read as well as the headers of their files. */
  readonly readsWeights: boolean;
  /** Whether the test texts are encoded. */
  readonly encodesTexts: boolean;
}

/** Message of the thread: a sign of progress, or the result. */
export type InspectionMessage = "progress" | Inspection;

/** Result of an inspection: the reason to reject the base model, or null. */
export interface Inspection {
  readonly error: SentError | null;
}

/** Repetitions of each character in the test texts for the tokenizer. */
const TRIAL_LENGTH = 10_000;

/** Test texts: long runs of one letter, digit, mark, space or line end, each followed by other characters. */
const TRIAL_TEXTS = ["a", "A", "é", "字", "1", " ", "\n", " \n", "!", "'", "\u0301", "\0"].map((run) => `${run.repeat(TRIAL_LENGTH)}b!`);

/** Inspects a base model; never rejects. */
async function inspect({ directory, readsWeights, encodesTexts }: InspectionRequest): Promise<Inspection> {
  try {
    const config = await readModelConfig(directory);
    await verifyWeights(directory, config, { readsValues: readsWeights, onTensor: () => post("progress") });
    const tokenizer = await loadTokenizer(directory);
    if (encodesTexts) for (const text of TRIAL_TEXTS) tokenizer.encode(text);
    return { error: null };
  } catch (error) {
    return { error: describeError(error) };
  }
}

const port = parentPort!;
const post = (message: InspectionMessage) => port.postMessage(message);
port.on("message", (request: InspectionRequest) => void inspect(request).then(post));
