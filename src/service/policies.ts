import type { BaseModelInfo, CallOptions, PolicyVersion } from "../engine/port.ts";

/** Weights held for one request: they stay loaded until {@link PolicyLease.release}, whatever is trained or deleted meanwhile. */
export interface PolicyLease {
  /** What `engine.sample` takes. */
  readonly policy: PolicyVersion;
  /** `entity/project/name:stepN`, or the identifier of a base model: the `model` of a response. */
  readonly resolvedName: string;
  /** Step of the checkpoint; null for a base model. */
  readonly step: number | null;
  /** Tokenizer and chat template are read from `base.directory`. */
  readonly base: BaseModelInfo;
  /** Gives the weights back; calling it twice is harmless. */
  release(): void;
}

/** From a name on the wire to weights. */
export interface PolicyResolver {
  /**
   * The policy that `name` stands for at this moment. Absent, null and empty mean the shipped base model.
   *
   * @throws {@link NotFoundError} `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never made.
   */
  resolvePolicy(name: string | null | undefined, options?: CallOptions): Promise<PolicyLease>;
}
