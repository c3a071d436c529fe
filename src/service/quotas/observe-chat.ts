/** Start of a chat completion: its charge, and its observers. */
import { joinChat, type ChatObserver, type ServiceObserver, type StartedChat } from "../observability/observer.ts";
import type { Charged } from "./quotas.ts";

/**
 * Charges a chat completion to its accounts and reports its start. Returns its observer; null without a charge and without an observer of
 * the service.
 *
 * @throws RateLimitError `E_RATE_LIMIT`, QuotaError `E_QUOTA` for an account at a limit.
 */
export function observeChat(observer: ServiceObserver | undefined, charged: Charged | null, chat: StartedChat): ChatObserver | null {
  const account = charged?.enter(chat.choices);
  const observed = observer?.chatStarted?.(chat);
  return joinChat([account, observed].flatMap((each) => each ?? []));
}
