/** Sampling settings of the playground: their fields, and the request that they make. */
import type { ChatCompletionRequest, RequestMessage } from "../../../base/schema/index.ts";
import { Select } from "../components/controls.tsx";

/** Settings of the playground as text, as the fields hold them. */
export interface PlaygroundSettings {
  readonly model: string;
  /** Step of the checkpoint; empty for the newest one. */
  readonly step: string;
  readonly system: string;
  readonly temperature: string;
  readonly topP: string;
  readonly maxTokens: string;
  /** Seed of the sampling; empty for a random one. */
  readonly seed: string;
  /** Number of alternatives per token. */
  readonly alternatives: string;
  /** JSON array of tools; empty for none. */
  readonly tools: string;
}

/** Settings at the first visit. */
export const DEFAULT_SETTINGS: PlaygroundSettings = {
  model: "",
  step: "",
  system: "",
  temperature: "1",
  topP: "1",
  maxTokens: "256",
  seed: "",
  alternatives: "5",
  tools: "",
};

/** Returns the request for the next answer. @throws Error if the tools are not a JSON array. */
export function playgroundRequest(settings: PlaygroundSettings, messages: readonly RequestMessage[]): Partial<ChatCompletionRequest> {
  const { model, step, system, temperature, topP, maxTokens, seed, alternatives, tools } = settings;
  /** Returns the field of a number; none for an empty text, so that the service's default applies. */
  const numberField = (name: string, text: string) => (text.trim() === "" ? {} : { [name]: Number(text) });
  const systemMessages = system.trim() === "" ? [] : [{ role: "system", content: system }];
  return {
    model: step.trim() === "" ? model : `${model}:step${step.trim()}`,
    messages: [...systemMessages, ...messages],
    ...numberField("temperature", temperature),
    ...numberField("top_p", topP),
    ...numberField("max_tokens", maxTokens),
    ...numberField("seed", seed),
    ...numberField("top_logprobs", alternatives),
    ...(tools.trim() === "" ? {} : { tools: parseTools(tools) }),
  };
}

/** Parses the field of the tools. @throws Error for another text than a JSON array. */
function parseTools(text: string): NonNullable<ChatCompletionRequest["tools"]> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`Expected the tools to be JSON: ${(error as Error).message}`, { cause: error });
  }
  if (!Array.isArray(value)) throw new Error('Expected the tools to be a JSON array of functions, such as [{"type": "function", …}]');
  return value as NonNullable<ChatCompletionRequest["tools"]>;
}

/** Properties of {@link SettingsForm}. */
interface SettingsFormProps {
  /** Names of the served models. */
  readonly names: readonly string[];
  readonly settings: PlaygroundSettings;
  readonly onChange: (settings: PlaygroundSettings) => void;
}

/** Fields of the sampling settings. */
export function SettingsForm({ names, settings, onChange }: SettingsFormProps) {
  const numberInput = (
    name: keyof PlaygroundSettings,
    label: string,
    range: { readonly min?: number; readonly max?: number; readonly step?: number | "any" },
    placeholder = "",
  ) => (
    <label class="field">
      <span>{label}</span>
      <input
        type="number"
        {...range}
        placeholder={placeholder}
        value={settings[name]}
        onInput={({ currentTarget }) => onChange({ ...settings, [name]: currentTarget.value })}
      />
    </label>
  );
  const textArea = (name: keyof PlaygroundSettings, label: string, rows: number, placeholder: string) => (
    <label class="field wide">
      <span>{label}</span>
      <textarea
        rows={rows}
        placeholder={placeholder}
        value={settings[name]}
        onInput={({ currentTarget }) => onChange({ ...settings, [name]: currentTarget.value })}
      />
    </label>
  );
  const isListed = settings.model === "" || names.includes(settings.model);
  const models = (isListed ? names : [settings.model, ...names]).map((value) => ({ value, label: value }));
  return (
    <form class="settings" aria-label="Sampling" onSubmit={(event) => event.preventDefault()}>
      <label class="field wide">
        <span>Model</span>
        <Select options={models} value={settings.model} onChange={(model) => onChange({ ...settings, model, step: "" })} />
      </label>
      {numberInput("step", "Checkpoint", { min: 0, step: 1 }, "newest")}
      {numberInput("temperature", "Temperature", { min: 0, max: 2, step: "any" })}
      {numberInput("topP", "Top p", { min: 0, max: 1, step: "any" })}
      {numberInput("maxTokens", "Max tokens", { min: 1, step: 1 })}
      {numberInput("seed", "Seed", { step: 1 }, "random")}
      {numberInput("alternatives", "Alternatives", { min: 0, max: 20, step: 1 })}
      {textArea("system", "System message", 3, "none")}
      <details class="wide" open={settings.tools !== ""}>
        <summary>Tools</summary>
        {textArea("tools", "JSON array of functions", 5, '[{"type": "function", "function": {"name": "lookup", …}}]')}
      </details>
    </form>
  );
}
