/** Ollama's local store of models: manifests name the blobs of a model by digest, and one blob is the GGUF file. */
import { homedir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { DataError, NotFoundError, UnsupportedError, WhetstoneError } from "../../../base/errors.ts";
import { formatBaseModel, type OllamaModel } from "../../../base/util/base-model.ts";
import { parseFileJson, readRegularFile, reasonOf } from "../../../base/util/regular-file.ts";

/** Media type of the layer with the GGUF file. */
const MODEL_LAYER = "application/vnd.ollama.image.model";

/** Layers that change the output of the model and are not supported. */
const UNSUPPORTED_LAYERS: Readonly<Record<string, string>> = {
  "application/vnd.ollama.image.adapter": "an adapter",
  "application/vnd.ollama.image.projector": "a projector for images",
};

/** Max size of a manifest, in bytes. */
const MAX_MANIFEST_BYTES = 1024 * 1024;

/** Manifest of a model: its layers, each with the digest of its blob. */
const manifest = z.looseObject({
  layers: z.array(z.looseObject({ mediaType: z.string(), digest: z.string() })),
});

/** Returns the directory of the store: `OLLAMA_MODELS`, or `~/.ollama/models`. */
function storeDirectory(): string {
  return process.env["OLLAMA_MODELS"] || join(homedir(), ".ollama", "models");
}

/**
 * Returns the path of the GGUF file of a model. The parts of the name contain no separators and do not start with a dot, so the path lies
 * in the store.
 *
 * @throws NotFoundError `E_NOT_FOUND` if the store has no such model.
 * @throws DataError `E_DATA` for an invalid manifest.
 * @throws UnsupportedError `E_UNSUPPORTED` for a model without weights or in several files, and for one with an adapter or a projector.
 */
export async function findOllamaModel(model: OllamaModel): Promise<string> {
  const name = formatBaseModel({ kind: "ollama", ...model });
  const { layers } = await readManifest(name, model);
  const unsupportedPart = layers.map(({ mediaType }) => UNSUPPORTED_LAYERS[mediaType]).find((part) => part !== undefined);
  if (unsupportedPart !== undefined) throw new UnsupportedError(`${name}: the model has ${unsupportedPart}, which is not supported`);
  const modelLayers = layers.filter(({ mediaType }) => mediaType === MODEL_LAYER);
  const [layer] = modelLayers;
  if (layer === undefined || modelLayers.length > 1)
    throw new UnsupportedError(`${name}: expected a model in one GGUF file, got ${modelLayers.length} files`);
  const [, digest] = /^sha256:([0-9a-f]{64})$/u.exec(layer.digest) ?? [];
  if (digest === undefined)
    throw new DataError(
      `${name}: expected the digest of its file to be sha256:<64 hexadecimal digits>, got '${layer.digest.slice(0, 100)}'`,
    );
  return join(storeDirectory(), "blobs", `sha256-${digest}`);
}

/** Reads the manifest of a model. */
async function readManifest(name: string, { registry, namespace, name: model, tag }: OllamaModel): Promise<z.infer<typeof manifest>> {
  const path = join(storeDirectory(), "manifests", registry, namespace, model, tag);
  let text: string;
  try {
    text = await readRegularFile(path, { maxBytes: MAX_MANIFEST_BYTES });
  } catch (cause) {
    if (WhetstoneError.isInstance(cause)) throw cause;
    const remedy = `Get it with \`ollama pull ${name.slice("ollama:".length)}\`, or set OLLAMA_MODELS to the directory of the store (default: ~/.ollama/models)`;
    throw new NotFoundError(`${name} is not in Ollama's store on this machine (${reasonOf(cause)}). ${remedy}`, {
      cause,
      param: "base_model",
    });
  }
  const parsed = manifest.safeParse(parseFileJson(path, text));
  if (parsed.success) return parsed.data;
  throw new DataError(`${name}: its manifest in Ollama's store has no list \`layers\` with \`mediaType\` and \`digest\``);
}
