/** Limits of API keys and entities: admission of chat completions, and the record of their use. */
import type { EntityLimits, KeyLimits } from "../../base/schema/index.ts";
import { Lru } from "../../base/util/lru.ts";
import { getOrInsert } from "../../base/util/values.ts";
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { recordEvery } from "../common/repeat.ts";
import type { ChatObserver } from "../observability/observer.ts";
import { findEntityLimits } from "../store/entities.ts";
import { addUses, type Use } from "../store/usage.ts";
import type { Store } from "../store/tables.ts";
import { Account } from "./account.ts";

/** Milliseconds for which the limits of an entity are used without reading them. Other services on the same database may change them. */
const MAX_AGE_MS = 5000;
/** Milliseconds between two records of the use. */
const RECORD_INTERVAL_MS = 60_000;
/** Max entities with limits in memory. */
const MAX_ENTITIES = 10_000;

/** API key with its limits. All sessions of an entity count as one key. */
export interface LimitedKey {
  /** Identifier of the key, as in `Principal.id`. */
  readonly key: string;
  /** Entity of the key; null = all. */
  readonly entity: string | null;
  /** Limits of the key itself. */
  readonly limits: KeyLimits;
}

/** Accounts that the requests of a key are charged to. */
export interface Charged {
  readonly accounts: readonly Account[];
  /**
   * Admits a chat completion: charges its request and its choices to the accounts, and its tokens as the returned observer learns of them.
   *
   * @throws RateLimitError `E_RATE_LIMIT` for an account at a limit; nothing is charged then.
   * @throws QuotaError `E_QUOTA` for more choices than may ever run at a time.
   */
  enter(choices: number): ChatObserver;
}

/** Accounts of API keys and entities in this process. Several processes on one database each permit the limits of a minute. */
export class Quotas {
  readonly #store: Store;
  /** Accounts of keys and entities by identifier. */
  readonly #accounts = new Map<string, Account>();
  /** Limits of entities by their names. */
  readonly #limits = new Lru<string, { readonly limits: EntityLimits; readonly readAtMs: number }>({ maxEntries: MAX_ENTITIES });
  /** Uses that are not recorded yet, by day, entity and key. */
  #pendingUses = new Map<string, Use>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** Returns the accounts that the requests of a key are charged to, with their present limits. */
  async chargedFor({ key, entity, limits }: LimitedKey): Promise<Charged> {
    const keyAccount = this.#account(key, "the API key");
    keyAccount.limit(limits);
    const accounts = [keyAccount];
    if (entity !== null) {
      const entityAccount = this.accountOf(entity);
      entityAccount.limit(await this.#limitsOf(entity));
      accounts.push(entityAccount);
    }
    return {
      accounts,
      enter: (choices) => chargeChat(accounts, choices, (used) => this.#addUse({ key_id: key, entity: entity ?? "", ...used })),
    };
  }

  /** Returns the account of an entity. */
  accountOf(entity: string): Account {
    return this.#account(`entity:${entity}`, `the entity '${entity}'`);
  }

  /** Makes the service read the limits of an entity again. */
  forget(entity: string): void {
    this.#limits.delete(entity);
  }

  /** Records the use every minute. Returns a function that stops, after the last use is recorded. */
  startRecording(logger: ServiceLogger): () => Promise<void> {
    return recordEvery(() => this.record().catch(logFailure(logger, "The use of API keys could not be recorded")), RECORD_INTERVAL_MS);
  }

  /** Records the use since the last call. */
  async record(): Promise<void> {
    const uses = [...this.#pendingUses.values()];
    if (uses.length === 0) return;
    this.#pendingUses = new Map();
    await addUses(this.#store, uses).catch((error: unknown) => {
      for (const use of uses) this.#addUse(use);
      throw error;
    });
  }

  /** Returns the account with an identifier. `owner` names it in messages. */
  #account(id: string, owner: string): Account {
    return getOrInsert(this.#accounts, id, () => new Account(owner));
  }

  /** Adds to the pending use of a key on a day, by default today (UTC, `YYYY-MM-DD`). */
  #addUse({ day = new Date().toISOString().slice(0, 10), ...use }: Omit<Use, "day"> & { readonly day?: string }): void {
    const id = `${day} ${use.entity} ${use.key_id}`;
    const recorded = this.#pendingUses.get(id);
    this.#pendingUses.set(id, {
      ...use,
      day,
      requests: use.requests + (recorded?.requests ?? 0),
      prompt_tokens: use.prompt_tokens + (recorded?.prompt_tokens ?? 0),
      generated_tokens: use.generated_tokens + (recorded?.generated_tokens ?? 0),
    });
  }

  /** Returns the limits of an entity, from memory for up to {@link MAX_AGE_MS}. */
  async #limitsOf(entity: string): Promise<EntityLimits> {
    const cached = this.#limits.get(entity);
    const nowMs = performance.now();
    if (cached !== undefined && nowMs - cached.readAtMs < MAX_AGE_MS) return cached.limits;
    const limits = await findEntityLimits(this.#store, entity);
    this.#limits.set(entity, { limits, readAtMs: nowMs });
    return limits;
  }
}

/** Charges a chat completion to accounts, see {@link Charged.enter}. @param onEnd - Called with its use. */
function chargeChat(
  accounts: readonly Account[],
  choices: number,
  onEnd: (used: Pick<Use, "requests" | "prompt_tokens" | "generated_tokens">) => void,
): ChatObserver {
  for (const account of accounts) account.require(choices);
  for (const account of accounts) account.start(choices);
  const charge = (tokens: number) => accounts.forEach((account) => account.charge(tokens));
  /** Charged tokens of each choice. */
  const chargedTokens = new Array<number>(choices).fill(0);
  let promptTotal = 0;
  let generatedTotal = 0;
  const generate = (choice: number, tokens: number) => {
    chargedTokens[choice] = (chargedTokens[choice] ?? 0) + tokens;
    generatedTotal += tokens;
    charge(tokens);
  };
  return {
    admitted({ promptTokens }) {
      promptTotal += promptTokens;
      charge(promptTokens);
    },
    // Charged one by one, so that the tokens of a cancelled request count, too.
    token: (choice) => generate(choice, 1),
    // Charges the tokens that were not reported one by one: answers of other servers report them only at the end of a choice.
    choiceFinished: ({ index, tokens }) => generate(index, Math.max(0, tokens - (chargedTokens[index] ?? 0))),
    ended() {
      for (const account of accounts) account.end(choices);
      onEnd({ requests: 1, prompt_tokens: promptTotal, generated_tokens: generatedTotal });
    },
  };
}
