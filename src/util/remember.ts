/**
 * The value under `key`, made on first use and shared by everyone who asks meanwhile. A failure is not remembered: the
 * next caller tries again.
 */
export function remember<K, V>(cache: Map<K, Promise<V>>, key: K, make: () => Promise<V>): Promise<V> {
  const known = cache.get(key);
  if (known) return known;
  const made = make();
  cache.set(key, made);
  made.catch(() => cache.delete(key));
  return made;
}
