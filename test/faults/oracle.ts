/** What an oracle is, and what it is given: the load it makes is the load that it judges. */
import { fromAnotherAddress } from '../fixtures/another-address.js';
import { ADMIN_TOKEN, type CallOptions, type HaloAnswer, pause } from '../fixtures/halo-server.js';
import type { Dice } from '../simulation/dice.js';
import type { Replica, Site } from './site.js';

/**
 * One kind of promise. It makes calls while faults happen, and judges each answer by what it knew
 * when the call began; and it looks at everything once more when a round is over.
 */
export interface Oracle {
  readonly name: string;
  /** Before the first round, while all is well. */
  begin?(world: World): Promise<void>;
  /** One client's next thing to do, called again and again by many clients at once. */
  act?(world: World, dice: Dice): Promise<void>;
  /** All is well again, and the clients go on. Judges what must be so by now. */
  settled(world: World, dice: Dice): Promise<void>;
  /** After the last round. */
  end?(world: World): Promise<void>;
}

/** What every call may be answered, whatever happens: nothing else is ever right (issue 3). */
const STATUSES = new Set([200, 201, 401, 403, 429, 503]);
/** No call waits longer; mutations have the longest deadline, 5 s, and commit attempts after it. */
const ANSWER_MAX_MS = 12_000;
/** Failures that are kept: the first ones tell. */
const FAILURES_MAX = 20;
/** A refusal for want of the store is over by then, when nothing is wrong any more. */
const RETRY_WITHIN_MS = 15_000;

/** The site as oracles see it, and the book of what went wrong. */
export class World {
  readonly failures: string[] = [];
  /** Answers by status; 0: the connection was lost, and nobody is to blame. */
  readonly answers = new Map<number, number>();
  /** Grows with each round; names of what is made in a round begin with it. */
  round = 0;

  constructor(readonly site: Site) {}

  get calls(): number {
    return [...this.answers.values()].reduce((sum, count) => sum + count, 0);
  }

  any(dice: Dice): Replica {
    return dice.pick(this.site.replicas);
  }

  fail(what: string): void {
    if (this.failures.length < FAILURES_MAX) this.failures.push(`round ${this.round}: ${what}`);
  }

  /** undefined: the connection was lost and may be, since the replica was killed or stopped. */
  async call(
    replica: Replica,
    method: string,
    path: string,
    options: CallOptions = {},
  ): Promise<HaloAnswer | undefined> {
    const { excused, server } = replica;
    const wasExcused = replica.isExcused;
    const mayFail = (): boolean => wasExcused || replica.isExcused || replica.excused !== excused;
    const startedMs = performance.now();
    const what = `${replica.name} ${method} ${path}`;
    try {
      const headers = { ...fromAnotherAddress(), ...options.headers };
      const answer = await server.call(method, path, { ...options, headers });
      const { status } = answer;
      this.answers.set(status, (this.answers.get(status) ?? 0) + 1);
      if (!STATUSES.has(status)) this.fail(`${what} was answered ${status} ${answer.text}`);
      const tookMs = Math.round(performance.now() - startedMs);
      if (tookMs > ANSWER_MAX_MS && !mayFail()) this.fail(`${what} was answered in ${tookMs} ms`);
      return answer;
    } catch (error) {
      this.answers.set(0, (this.answers.get(0) ?? 0) + 1);
      if (!mayFail()) this.fail(`${what} was not answered: ${causeOf(error)}`);
      return undefined;
    }
  }

  /** As the administrator. */
  admin(
    replica: Replica,
    method: string,
    path: string,
    body?: unknown,
  ): Promise<HaloAnswer | undefined> {
    return this.call(replica, method, path, {
      token: ADMIN_TOKEN,
      ...(body === undefined ? {} : { body }),
    });
  }

  /** Calls until the answer is none that asks to come back; for when all is well. */
  async insist(
    what: string,
    call: () => Promise<HaloAnswer | undefined>,
  ): Promise<HaloAnswer | undefined> {
    const endMs = Date.now() + RETRY_WITHIN_MS;
    for (;;) {
      const answer = await call();
      if (answer !== undefined && answer.status !== 503) return answer;
      if (Date.now() > endMs) {
        this.fail(`${what}: still ${answer?.text ?? 'no answer'} although all is well`);
        return undefined;
      }
      await pause(50);
    }
  }
}

function causeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: string; message?: string } };
  return `${String(error)} ${cause?.code ?? cause?.message ?? ''}`;
}
