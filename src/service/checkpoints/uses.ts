/** Holds on checkpoints while their files are read. Retention skips held checkpoints. */
export interface CheckpointUses {
  /** Holds a checkpoint until the returned function is called. Further calls of that function have no effect. */
  hold(checkpointId: string): () => void;
  isHeld(checkpointId: string): boolean;
}

/** Creates an empty set of holds. */
export function createCheckpointUses(): CheckpointUses {
  const held = new Map<string, Set<symbol>>();
  return {
    hold(checkpointId) {
      const mine = Symbol(checkpointId);
      const holders = held.get(checkpointId) ?? new Set();
      held.set(checkpointId, holders.add(mine));
      return () => {
        holders.delete(mine);
        if (holders.size === 0 && held.get(checkpointId) === holders) held.delete(checkpointId);
      };
    },
    isHeld: (checkpointId) => held.has(checkpointId),
  };
}
