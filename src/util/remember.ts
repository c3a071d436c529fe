/**
 * Returns the value of `key`, computed on first use and shared by concurrent callers. A failure is not cached: the next caller tries again.
 *
 * @param max - Max number of cached values; the least recently used value is evicted. @default all
 */
export function remember<K, V>(cache: Map<K, Promise<V>>, key: K, make: () => Promise<V>, max = Infinity): Promise<V> {
  const known = cache.get(key);
  const value = known ?? make();
  // A map iterates in insertion order, so re-inserting makes the value the most recently used.
  cache.delete(key);
  cache.set(key, value);
  if (known === undefined) value.catch(() => cache.get(key) === value && cache.delete(key));
  if (cache.size > max) cache.delete(cache.keys().next().value!);
  return value;
}
