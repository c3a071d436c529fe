/** Small curves in tables. */

/** Width in pixels. */
const WIDTH = 96;
/** Height in pixels. */
const HEIGHT = 22;
/** Space around the curve in pixels. */
const PAD = 2;

/** Small curve of values without axes; null values are gaps. Decorative: the numbers stand next to it. */
export function Sparkline({ values }: { readonly values: readonly (number | null)[] }) {
  const finite = values.filter((value) => value !== null);
  if (finite.length < 2) return <span class="sparkline" aria-hidden="true" />;
  const low = finite.reduce((a, b) => Math.min(a, b));
  const high = finite.reduce((a, b) => Math.max(a, b));
  const x = (index: number) => PAD + (index / (values.length - 1)) * (WIDTH - 2 * PAD);
  const y = (value: number) => (high === low ? HEIGHT / 2 : HEIGHT - PAD - ((value - low) / (high - low)) * (HEIGHT - 2 * PAD));
  const path = values.map((value, index) => {
    if (value === null) return "";
    return `${(values[index - 1] ?? null) === null ? "M" : "L"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} aria-hidden="true">
      <path d={path.join("")} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round" />
    </svg>
  );
}
