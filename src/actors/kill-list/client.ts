/** Typed functions with which the rest of the process asks the kill-list actor. */
import { type ActorRef, type AskOptions, askForValue } from '../../runtime/ask.js';
import type {
  Kill,
  Killed,
  KillListReads,
  KillListVersion,
  KillListView,
  KillListWrites,
  Lift,
  Lifted,
} from './messages.js';

/** The actor's name, by which placement and metrics know it. */
export const KILL_LIST_ACTOR = 'kill-list';

type Kinds = KillListReads & KillListWrites;

/** Every call rejects with a `CodedError`. */
export class KillListClient {
  constructor(private readonly ref: ActorRef) {}

  /** The list after a catch-up that began after this call. */
  list(): Promise<KillListView> {
    return this.value('list', {});
  }

  /** Where the list is after a catch-up that began after this call. */
  version(): Promise<KillListVersion> {
    return this.value('version', {});
  }

  /** Uses the operators' reserve: overload never refuses the one who stops it. */
  kill(input: Kill): Promise<Killed> {
    return this.value('kill', input, { operator: true });
  }

  /** As `kill`. */
  lift(input: Lift): Promise<Lifted> {
    return this.value('lift', input, { operator: true });
  }

  private value<Kind extends keyof Kinds>(
    kind: Kind,
    payload: Kinds[Kind]['payload'],
    options?: AskOptions,
  ): Promise<Kinds[Kind]['answer']> {
    return askForValue(this.ref, kind, payload, options);
  }
}
