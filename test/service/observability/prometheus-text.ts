/** Reader of the text format of Prometheus. */

export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Returns the samples of a metric. @throws Error for a line that is no sample. */
export function samplesOf(text: string, metric: string): Sample[] {
  return text
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .flatMap((line) => {
      const match = /^(?<name>[a-zA-Z_:][\w:]*)(?:\{(?<labels>.*)\})? (?<value>\S+)$/u.exec(line);
      if (match?.groups === undefined) throw new Error(`Expected a sample, got '${line}'`);
      const { name, labels = "", value } = match.groups;
      if (name !== metric) return [];
      const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/gu)].map(([, key = "", label = ""]) => [key, label] as const);
      return [{ labels: Object.fromEntries(pairs), value: Number(value) }];
    });
}

/** Returns labels as a text that does not depend on their order. */
function textOf(labels: Readonly<Record<string, string>>): string {
  return JSON.stringify(Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** Returns the value of the sample with exactly these labels; undefined without one. */
export function valueOf(text: string, metric: string, labels: Readonly<Record<string, string>> = {}): number | undefined {
  const wanted = textOf(labels);
  return samplesOf(text, metric).find((sample) => textOf(sample.labels) === wanted)?.value;
}
