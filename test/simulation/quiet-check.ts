/** What must hold once nothing goes wrong any more and nobody asks anything. */
import { isDeepStrictEqual } from 'node:util';
import { FAILURE_BURST } from '../../src/actors/limiter/state.js';
import type { Answer, Asked } from './door.js';
import { lifeOf } from './life-check.js';
import type { Life } from './lives.js';
import { WHOLE_LIST } from './lives.js';
import type { SimulatedReplica } from './replica.js';
import type { World } from './world.js';

/** A view is replayed with pauses of at most 5 s between two tries, and a pause may last 3 s. */
const RECOVERY_MS = 9_000;
/** Each step of the check is answered in much less when nothing goes wrong. */
const SETTLED_WITHIN_MS = 10_000;
/** A page small enough for the devices of a run to need several. */
const PAGE_LIMIT = 3;

/** Waits until everything works again, uses it once, and compares all that anyone can see. */
export async function checkQuiet(world: World, lives: readonly Life[]): Promise<void> {
  await world.clock.runUntil(() => world.pendingCount === 0, RECOVERY_MS);
  await world.clock.advance(RECOVERY_MS);
  if (world.pendingCount > 0) world.fail(`${world.pendingCount} calls were never answered`);
  await within(world, useEverything(world, lives));
  await within(world, compareLists(world));
  await within(world, shareOneBudget(world));
  await world.clock.advance(2_000);
  if (world.answersOnly) return;
  compareViews(world);
  if (world.server.database.evidenceLog.events === 0) world.fail('nothing at all was recorded');
}

/** Every replica serves everything again, and every credential is tried on each of them. */
async function useEverything(world: World, lives: readonly Life[]): Promise<void> {
  for (const [index, replica] of world.replicas.entries()) {
    await newDevice(world, replica, lives.length + index + 1);
  }
  for (const life of lives) {
    for (const replica of world.replicas) {
      for (const credential of life.credentials.slice(-4)) {
        const answer = await life.ask({ kind: 'authenticate', credential }, replica);
        const refused = 'code' in answer && !/^device_/.test(answer.code);
        if (refused) world.fail(`${replica.name} does not work again: ${answer.code}`);
      }
    }
  }
}

async function newDevice(world: World, replica: SimulatedReplica, number: number): Promise<void> {
  const user = `late-${number}`;
  world.userOfLife.set(number, user);
  const ask = async (asked: Asked): Promise<Answer> => world.call(number, replica, asked);
  const works = async (
    asked: Asked,
  ): Promise<{ credential: string; token: string; id: string }> => {
    const answer = await ask(asked);
    if ('value' in answer) {
      const { credential = '', token = '', device } = answer.value;
      return { credential, token, id: device?.id ?? '' };
    }
    world.fail(`${replica.name} does not work again: ${asked.kind} is answered ${answer.code}`);
    return { credential: '', token: '', id: '' };
  };
  const { token } = await works({ kind: 'mint', user, ttlSeconds: 60 });
  const { credential, id } = await works({ kind: 'enroll', token, name: `${number}/late` });
  await works({ kind: 'authenticate', credential });
  const rotated = await works({ kind: 'rotate', id, overlapSeconds: 0, credential });
  await works({ kind: 'authenticate', credential: rotated.credential });
  await works({ kind: 'revoke', id, reason: 'the end' });
  const after = await ask({ kind: 'authenticate', credential: rotated.credential });
  if (!('code' in after) || after.code !== 'device_revoked') {
    world.fail(`${replica.name} lets a device in that it has just revoked`);
  }
}

/** All replicas list the same, in pages too, and so does one that has just been started. */
async function compareLists(world: World): Promise<void> {
  const lists: string[] = [];
  for (const replica of world.replicas) {
    const whole = await listOf(world, replica, WHOLE_LIST.limit);
    const paged = await listOf(world, replica, PAGE_LIMIT);
    lists.push(whole);
    if (whole !== paged) world.fail(`${replica.name} lists other devices in pages than at once`);
    const kills = await world.call(0, replica, { kind: 'killList' });
    if (!('value' in kills)) world.fail(`${replica.name} cannot give the kill list`);
  }
  if (new Set(lists).size > 1)
    world.fail(`the replicas list different devices: ${lists.join('\n')}`);
}

/** An address that guesses at all replicas at once is granted one budget by all of them. */
async function shareOneBudget(world: World): Promise<void> {
  const asked: Asked = { kind: 'fail', address: '198.51.100.7' };
  let granted = 0;
  for (let round = 0; round < FAILURE_BURST; round += 1) {
    const answers = await Promise.all(
      world.replicas.map((replica) => world.call(0, replica, asked)),
    );
    granted += answers.filter((answer) => 'value' in answer).length;
  }
  if (granted !== FAILURE_BURST) world.fail(`an address was let fail ${granted} times`);
}

async function listOf(world: World, replica: SimulatedReplica, limit: number): Promise<string> {
  const lines: string[] = [];
  for (let after: number | undefined = 0; after !== undefined; ) {
    const answer: Answer = await world.call(0, replica, { kind: 'list', limit, after });
    if (!('value' in answer)) {
      world.fail(`${replica.name} cannot list devices: ${answer.code}`);
      break;
    }
    for (const view of answer.value.items ?? []) {
      const { id, name, user, enrolledAtMs, revokedAtMs } = view;
      if (!world.userOfLife.has(lifeOf(view))) world.fail(`nobody has enrolled ${name}`);
      lines.push(`${id} ${name} ${user} ${enrolledAtMs} ${revokedAtMs ?? ''}`);
    }
    after = answer.value.next;
  }
  return lines.join('\n');
}

/** What a view alone remembers is no part of what replicas share. */
const OWN_FIELDS = new Set(['packed', 'notedAtSeconds']);

function compareViews(world: World): void {
  const [first, ...others] = world.replicas.map((replica) => replica.views());
  for (const [name, { facts, state }] of first ?? []) {
    // What an actor without streams knows is its own.
    if (state === undefined) continue;
    for (const other of others) {
      const compared = other.get(name);
      if (!isDeepStrictEqual(shared(facts), shared(compared?.facts))) {
        const both = JSON.stringify([facts, compared?.facts]);
        world.fail(`two replicas' ${name} actors are not at the same place: ${both}`);
      }
      if (!isDeepStrictEqual(shared(state), shared(compared?.state))) {
        world.fail(`two replicas' ${name} actors have different views`);
      }
    }
  }
}

/** A copy without what is a view's own; of a map, its entries by name, whatever their order. */
function shared(value: unknown): unknown {
  if (value instanceof Map) {
    const entries = [...value].map(([key, one]): [string, unknown] => [String(key), shared(one)]);
    return Object.fromEntries(entries.sort(([one], [other]) => (one < other ? -1 : 1)));
  }
  if (Array.isArray(value)) return value.map(shared);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(
    ([key, one]) => !OWN_FIELDS.has(key) && key !== 'replayedRecords' && one !== undefined,
  );
  return Object.fromEntries(entries.map(([key, one]) => [key, shared(one)]));
}

async function within(world: World, work: Promise<void>): Promise<void> {
  let done = false;
  void work.finally(() => {
    done = true;
  });
  const ended = await world.clock.runUntil(
    () => done || world.failure !== undefined,
    SETTLED_WITHIN_MS,
  );
  if (!ended) world.fail('it takes too long although nothing goes wrong any more');
}
