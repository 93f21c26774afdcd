/**
 * The clients of a run. Each knows only what it was answered; the devices among them retry, race,
 * steal and try again after their end, since that is what the replicas must get right.
 */
import { delay } from '../../src/runtime/clock.js';
import type { Answer, AnswerValue, Asked } from './door.js';
import { deviceName } from './life-check.js';
import type { SimulatedReplica } from './replica.js';
import { UNSTORABLE } from './simulated-store.js';
import type { World } from './world.js';

/** Answers after which the same call is tried again. */
const RETRIED = new Set([
  'store_unavailable',
  'overloaded',
  'deadline_exceeded',
  'actor_restarted',
  'outcome_unknown',
  'connection_lost',
  'stale',
  'idempotency_in_progress',
]);
/** Tries of one call; whoever gets no further goes on with something else. */
const TRIES_MAX = 5;
/** Tries of what a life begins with. */
const FIRST_TRIES_MAX = 25;
/** Rounds of one device's use; keeps a run in the hundreds of calls. */
const ROUNDS_MAX = 30;
const CROWDED_ROUNDS_MAX = 70;

/** How often a gateway comes with one device in a crowded run. */
const COMES_MAX = 100;

/** What is done with a device, and how often each. */
const USE = { newest: 10, any: 3, twice: 2, rotate: 2, again: 1, look: 1 };
const CROWDED_USE = { newest: 2, any: 1, twice: 2, rotate: 12, again: 1, look: 1 };

/** One device, as those around it know it. */
export class Life {
  readonly tokens: string[] = [];
  readonly credentials: string[] = [];
  id: string | undefined;
  private keys = 0;

  constructor(
    readonly world: World,
    readonly number: number,
    readonly user: string,
  ) {
    world.userOfLife.set(number, user);
  }

  /** From the token to the end, whatever comes of it. */
  async run(): Promise<void> {
    const { clientDice: dice, clock, settings } = this.world;
    await this.think(10);
    if (!settings.crowded && dice.chance(0.5)) {
      await delay(clock, dice.between(0, settings.stormMs / 2));
    }
    await this.mint();
    if (settings.faults.storeClockStepMs > 0 && dice.chance(0.15)) await this.voidBackInTime();
    if (this.tokens.length === 0) return;
    await this.enrollSomehow();
    if (dice.chance(0.4)) await this.killAtFirstUse();
    const { crowded } = settings;
    const users = crowded ? dice.whole(5, 8) : dice.whole(1, 3);
    await Promise.all([
      ...Array.from({ length: users }, () => this.use()),
      this.shutOut(),
      ...(crowded || dice.chance(0.5) ? [this.killAndLift()] : []),
      ...(crowded ? this.world.replicas.map((replica) => this.keepComing(replica)) : []),
    ]);
  }

  /** Asks some replica; asks again, perhaps another, while nobody knows or nothing happened. */
  async insist(asked: Asked, triesMax = TRIES_MAX): Promise<AnswerValue | string> {
    for (let attempt = 1; ; attempt += 1) {
      const answer = await this.ask(asked);
      if ('value' in answer) return answer.value;
      if (!RETRIED.has(answer.code) || attempt === triesMax || this.ended) return answer.code;
      await this.think(5);
    }
  }

  /** One call, remembered but not repeated. */
  async ask(asked: Asked, replica?: SimulatedReplica): Promise<Answer> {
    const { world } = this;
    const chosen = replica ?? world.clientDice.pick(world.replicas);
    const answer = await world.call(this.number, chosen, asked);
    this.learn(answer);
    return answer;
  }

  private learn(answer: Answer): void {
    if (!('value' in answer)) return;
    const { token, credential, device } = answer.value;
    if (token !== undefined && !this.tokens.includes(token)) this.tokens.push(token);
    if (credential !== undefined && !this.credentials.includes(credential)) {
      this.credentials.push(credential);
    }
    // After a restore the same token may make another device.
    this.id = device?.id ?? this.id;
  }

  private async mint(): Promise<void> {
    const { clientDice: dice } = this.world;
    const ttlSeconds = dice.pick([3, 20, 600]);
    const asked = { kind: 'mint', user: this.user, ttlSeconds, ...this.key(0.6) } as const;
    const other = { ...asked, ttlSeconds: ttlSeconds + 1 };
    if ('key' in asked && dice.chance(0.2)) await this.both(asked, asked);
    if (this.tokens.length === 0) await this.insist(asked, FIRST_TRIES_MAX);
    if ('key' in asked && dice.chance(0.3)) await this.insist(dice.chance(0.3) ? other : asked);
  }

  /** A token is minted and voided after the store's clock was set back behind an earlier void. */
  private async voidBackInTime(): Promise<void> {
    const { clientDice: dice, storeTime, trace } = this.world;
    const { user } = this;
    await this.insist({ kind: 'void', user });
    const stepMs = -dice.whole(50, 2_000);
    trace.note(`the store's clock is set by ${stepMs} ms`);
    storeTime.step(stepMs);
    await this.insist({ kind: 'mint', user, ttlSeconds: 600 });
    const voided = await this.insist({ kind: 'void', user });
    // Otherwise it might make a device, and a life has one.
    if (typeof voided !== 'string') await this.insist(this.enrolling('void', {}));
    this.tokens.length = 0;
    await this.mint();
  }

  private async enrollSomehow(): Promise<void> {
    const { clientDice: dice } = this.world;
    await this.think(dice.pick([1, 1, 20]));
    const own = dice.chance(0.6) ? { deviceKey: `device-key-${this.number}` } : {};
    const asked = this.enrolling('own', { ...own, ...this.key(0.4) });
    const thief = this.enrolling('thief', { deviceKey: 'of-a-thief' });
    const poison = this.enrolling(UNSTORABLE, own);
    if (dice.chance(0.1)) await this.insist(poison);
    if (dice.chance(0.3)) await this.both(asked, dice.chance(0.5) ? asked : thief);
    await this.insist(asked, FIRST_TRIES_MAX);
    for (let again = 0; again < 2 && dice.chance(0.4); again += 1) {
      await this.insist(dice.chance(0.7) ? this.enrolling('again', asked) : thief);
    }
  }

  private enrolling(
    suffix: string,
    more: { readonly deviceKey?: string; readonly key?: string },
  ): Asked & { kind: 'enroll' } {
    const { deviceKey, key } = more;
    return {
      kind: 'enroll',
      token: this.tokens.at(-1) ?? '',
      name: deviceName(this.number, key === undefined ? suffix : 'own'),
      ...(deviceKey === undefined ? {} : { deviceKey }),
      ...(key === undefined ? {} : { key }),
    };
  }

  private async use(): Promise<void> {
    const { clientDice: dice, settings } = this.world;
    const weights = settings.crowded ? CROWDED_USE : USE;
    const rounds = settings.crowded ? CROWDED_ROUNDS_MAX : ROUNDS_MAX;
    for (let round = 0; round < rounds && !this.ended; round += 1) {
      const what = dice.weighted(weights);
      if (what === 'newest') await this.authenticate(this.credentials.at(-1));
      else if (what === 'any') await this.authenticate(dice.pick(this.credentials));
      else if (what === 'twice') await this.knockEverywhere();
      else if (what === 'rotate') await this.rotate();
      else if (what === 'again') await this.insist(this.enrolling('again', this.tokenKey()));
      else if (this.id !== undefined) await this.insist({ kind: 'get', id: this.id });
      await this.think(1);
    }
  }

  /** A gateway that lets the device through all the time: a catch-up is always under way. */
  private async keepComing(replica: SimulatedReplica): Promise<void> {
    for (let time = 0; time < COMES_MAX && !this.ended; time += 1) {
      const credential = this.credentials.at(-1);
      if (credential !== undefined) await this.ask({ kind: 'authenticate', credential }, replica);
      await this.think(0.2);
    }
  }

  private tokenKey(): { readonly deviceKey?: string } {
    return this.world.clientDice.chance(0.7) ? { deviceKey: `device-key-${this.number}` } : {};
  }

  private async authenticate(credential: string | undefined): Promise<void> {
    if (credential !== undefined) await this.ask({ kind: 'authenticate', credential });
  }

  private async rotate(): Promise<void> {
    const { clientDice: dice, settings } = this.world;
    const { id } = this;
    const credential = dice.chance(0.8) ? this.credentials.at(-1) : dice.pick(this.credentials);
    if (id === undefined || credential === undefined) return;
    const asked: Asked = {
      kind: 'rotate',
      id,
      overlapSeconds: dice.pick([0, 1, 4, 300]),
      // Among many who rotate it, a device's own credential is seldom the current one.
      ...(dice.chance(settings.crowded ? 0.3 : 0.7) ? { credential } : {}),
      ...this.key(0.5),
    };
    const result = await this.insist(asked);
    if (asked.key !== undefined && dice.chance(0.2)) await this.insist(asked);
    if (typeof result !== 'string' && dice.chance(0.5)) await this.knockEverywhere();
  }

  /** Everything that ever let it in, at every replica at once. */
  private async knockEverywhere(): Promise<void> {
    const knocks = this.world.replicas.flatMap((replica) =>
      this.credentials
        .slice(-3)
        .map((credential) => this.ask({ kind: 'authenticate', credential }, replica)),
    );
    await Promise.all(knocks);
  }

  private async shutOut(): Promise<void> {
    const { clientDice: dice, settings } = this.world;
    // In a crowd there is more to see while the device lives.
    const [early, late] = settings.crowded ? [0.7, 1] : [0, 0.5];
    await delay(this.world.clock, settings.stormMs * dice.between(early, late));
    if (this.id === undefined || this.ended || dice.chance(0.25)) return;
    const { id } = this;
    const asked: Asked = { kind: 'revoke', id, reason: 'lost', ...this.key(0.5) };
    const other = { kind: 'revoke', id, reason: 'found by another admin' } as const;
    if (dice.chance(0.3)) await this.both(asked, other);
    await this.insist(asked);
    await this.knockEverywhere();
    await Promise.all([this.rotate(), this.insist(this.enrolling('after', this.tokenKey()))]);
    await this.knockEverywhere();
    await this.insist(dice.chance(0.5) ? asked : { ...asked, reason: 'stolen' });
    await this.insist({ kind: 'get', id });
  }

  /** Somebody kills it at the very moment at which it comes for the first time. */
  private async killAtFirstUse(): Promise<void> {
    if (this.id === undefined) return;
    const { clientDice: dice, clock } = this.world;
    const target = { kind: 'device', id: this.id } as const;
    await Promise.all([
      this.knockEverywhere(),
      this.insist({ kind: 'kill', target, reason: 'odd from the start' }),
    ]);
    await delay(clock, dice.between(0, 3_000));
    await this.insist({ kind: 'lift', target });
  }

  private async killAndLift(): Promise<void> {
    const { clientDice: dice, settings, storeTime } = this.world;
    const rounds = settings.crowded ? 20 : 8;
    for (let round = 0; round < rounds && !this.ended; round += 1) {
      await delay(this.world.clock, dice.between(0, settings.stormMs / rounds));
      if (this.id === undefined) return;
      const ofUser = dice.chance(0.2);
      const target = ofUser
        ? ({ kind: 'user', id: this.user } as const)
        : ({ kind: 'device', id: this.id } as const);
      const expiry = dice.chance(0.3)
        ? { expiresAtMs: storeTime.wallMs() + dice.whole(0, 3_000) }
        : {};
      await this.insist({ kind: 'kill', target, reason: 'odd', ...expiry, ...this.key(0.3) });
      await this.knockEverywhere();
      await this.think(3);
      await this.insist({ kind: 'lift', target, ...this.key(0.3) });
      await this.knockEverywhere();
    }
  }

  /** Two calls at the same moment, to one replica or to two. */
  private async both(one: Asked, other: Asked): Promise<void> {
    const { clientDice: dice, replicas } = this.world;
    const first = dice.pick(replicas);
    const second = dice.chance(0.5) ? first : dice.pick(replicas);
    await Promise.all([this.ask(one, first), this.ask(other, second)]);
  }

  private key(chance: number): { readonly key?: string } {
    if (!this.world.clientDice.chance(chance)) return {};
    this.keys += 1;
    return { key: `key-${this.number}-${this.keys}` };
  }

  private get ended(): boolean {
    return this.world.calm;
  }

  private think(times: number): Promise<void> {
    const { clientDice, clock, settings } = this.world;
    return delay(clock, clientDice.pauseMs(settings.thinkMeanMs * times));
  }
}

/** An admin who looks at lists all the time, whole ones and pages. */
export async function lookAtLists(world: World): Promise<void> {
  const { clientDice: dice } = world;
  while (!world.calm) {
    await delay(world.clock, dice.pauseMs(400));
    const replica = dice.pick(world.replicas);
    if (dice.chance(0.4)) await world.call(0, replica, { kind: 'killList' });
    const paging = dice.chance(0.4) ? { limit: 3, after: dice.whole(0, 4) } : WHOLE_LIST;
    await world.call(0, replica, { kind: 'list', ...paging });
  }
}

/** More devices than a run has. */
export const WHOLE_LIST = { limit: 1_000, after: 0 };

/** An admin who voids a user's tokens now and then, and tries until it is done. */
export async function voidTokens(world: World, users: readonly string[]): Promise<void> {
  const { clientDice: dice } = world;
  while (!world.calm) {
    await delay(world.clock, dice.pauseMs(700));
    // What the store refuses is in a batch with what others ask, which must not fail for it.
    const user = dice.chance(0.3) ? UNSTORABLE : dice.pick(users);
    const asked: Asked = { kind: 'void', user };
    for (let attempt = 0; attempt < TRIES_MAX && !world.calm; attempt += 1) {
      const answer = await world.call(0, dice.pick(world.replicas), asked);
      if ('value' in answer || answer.code === 'internal_error') break;
    }
  }
}

/** Someone who guesses credentials at every replica, from a few addresses. */
export async function guess(world: World): Promise<void> {
  const { clientDice: dice } = world;
  while (!world.calm) {
    await delay(world.clock, dice.pauseMs(100));
    const address = `192.0.2.${dice.whole(1, 3)}`;
    await world.call(0, dice.pick(world.replicas), { kind: 'fail', address });
  }
}
