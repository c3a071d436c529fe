/**
 * The value under `key`, made on first use and shared by everyone who asks meanwhile. A failure is not remembered: the
 * next caller tries again.
 *
 * @param max - Values kept; the one that nobody asked for longest goes first. @default all
 */
export function remember<K, V>(cache: Map<K, Promise<V>>, key: K, make: () => Promise<V>, max = Infinity): Promise<V> {
  const known = cache.get(key);
  const value = known ?? make();
  // A map iterates in order of insertion: what is used goes to the end.
  cache.delete(key);
  cache.set(key, value);
  if (known === undefined) value.catch(() => cache.get(key) === value && cache.delete(key));
  if (cache.size > max) cache.delete(cache.keys().next().value!);
  return value;
}
