/**
 * Group of requests that takes one share of a resource, such as all samples of one HTTP request. The clients take turns, and so do the
 * groups of a client: a client with many requests delays no other client.
 */
export interface RequestGroup {
  /** Client that the requests come from, such as an entity of the service. */
  readonly client: string;
  /** Number that no other group has. */
  readonly id: number;
}

/** Id of the next group. */
let nextId = 0;

/** Returns a new group of a client. */
export function newGroup(client: string): RequestGroup {
  return { client, id: nextId++ };
}
