/** Which checkpoints' files somebody reads at the moment, so that retention leaves them. */
export interface CheckpointUses {
  /** Holds a checkpoint until the returned function is called; calling that twice is harmless. */
  hold(checkpointId: string): () => void;
  isHeld(checkpointId: string): boolean;
}

/** See {@link CheckpointUses}. */
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
