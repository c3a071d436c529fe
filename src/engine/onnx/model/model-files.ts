/** Files of a model directory in Hugging Face layout. */

/** Name of the configuration. */
export const MODEL_CONFIG_FILE = "config.json";

/** Names of the files, other than weights, that belong to a model: configuration, tokenizer and chat template. */
export const MODEL_FILES: readonly string[] = [
  MODEL_CONFIG_FILE,
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "vocab.json",
  "merges.txt",
  "chat_template.jinja",
];

/** Keys of `config.json` with the data type of the stored weights: the older name and the newer one. */
const DTYPE_KEYS = ["torch_dtype", "dtype"];

/**
 * Returns the text of a `config.json` with another data type of the weights.
 *
 * @param config - Text of the file.
 * @param dtype - Name of the type in PyTorch.
 */
export function withDtype(config: string, dtype: string): string {
  const parsed = JSON.parse(config) as Record<string, unknown>;
  for (const key of DTYPE_KEYS) if (key in parsed) parsed[key] = dtype;
  return `${JSON.stringify(parsed, null, 2)}\n`;
}
