/** Contract: whatever way units of several stores interleave, their views end equal. */
import t from 'tap';
import { type Random, seededRandom } from '../../src/runtime/random.js';
import type { Append, StoredRecord } from '../../src/storage/store.js';
import type { ContractBackend } from '../storage-contract.js';
import { body, keyed, unkeyed, View } from './view.js';

const ROUNDS = 4;
const STEPS_PER_ACTOR = 40;
const STREAMS = ['a', 'b', 'c'] as const;
const KEYS = 6;

/** `SEED=n` repeats a run that failed. */
const seedBase = Number(process.env['SEED'] ?? Math.floor(Math.random() * 1e9));

function numberIn(record: StoredRecord | undefined): number {
  return record === undefined ? 0 : (JSON.parse(record.body) as [number, string, number])[2];
}

/**
 * One actor: commits that count up a shared total per stream, next to random keyed and unkeyed
 * appends, with catch-ups between. A lost or half-seen record makes the total come out too small.
 */
async function act(view: View, random: Random, mark: string): Promise<Map<string, number>> {
  const committed = new Map<string, number>();
  for (let step = 0; step < STEPS_PER_ACTOR; step += 1) {
    if (random.fraction() < 0.3) {
      await view.catchUp();
      continue;
    }
    const streams = STREAMS.filter(() => random.fraction() < 0.6).toReversed();
    const abandon = random.fraction() < 0.1;
    const extras: Append[] = streams.flatMap((stream) => [
      keyed(stream, `key ${Math.floor(random.fraction() * KEYS)}`, `${mark} ${step}`),
      unkeyed(stream, `${mark} ${step}`),
    ]);
    try {
      await view.commit({ streams }, (locked) => {
        if (abandon) throw new Error('abandoned');
        const totals = streams.map((stream) => {
          const foreign = locked.records.findLast((r) => r.stream === stream && r.key === 'total');
          return keyed(stream, 'total', numberIn(foreign ?? view.rows.get(`${stream} total`)) + 1);
        });
        return { appends: [...extras, ...totals] };
      });
      for (const stream of streams) committed.set(stream, (committed.get(stream) ?? 0) + 1);
    } catch (error) {
      if (!abandon) throw error;
    }
    if (random.fraction() < 0.5) await new Promise((resolve) => setImmediate(resolve));
  }
  return committed;
}

export function registerInterleavings(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: interleaved writers lose nothing and end with equal views`, async (t) => {
    t.comment(`SEED=${seedBase}`);
    for (let round = 0; round < ROUNDS; round += 1) {
      const seed = seedBase + round;
      const opened = await backend.open();
      const other = await opened.another();
      const views = await Promise.all(
        [opened.store, other, opened.store, other].map((store) => View.replay(store, STREAMS)),
      );
      const counts = await Promise.all(
        views.map((view, i) => act(view, seededRandom(seed * 10 + i), `actor ${i}`)),
      );
      for (const view of views) await view.catchUp();
      const fresh = await View.replay(await opened.another(), STREAMS);
      for (const [i, view] of views.entries()) {
        t.same(view.contents(), fresh.contents(), `view ${i} of seed ${seed}`);
        t.same(view.position.cursors, fresh.position.cursors, `position ${i} of seed ${seed}`);
      }
      for (const stream of STREAMS) {
        const commits = counts.reduce((sum, count) => sum + (count.get(stream) ?? 0), 0);
        t.equal(numberIn(fresh.rows.get(`${stream} total`)), commits, `${stream} of seed ${seed}`);
        const ids = fresh.applied.filter((r) => r.stream === stream).map((r) => r.id);
        t.ok(
          ids.every((id, i) => i === 0 || id > ids[i - 1]!),
          `${stream} replays in id order`,
        );
      }
      await opened.close();
    }
  });

  t.test(`${name}: units over the same streams in any order do not deadlock`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const other = await opened.another();
    const { position } = await View.replay(opened.store, STREAMS);
    await Promise.all(
      Array.from({ length: 30 }, (_, i) => {
        const streams = i % 2 === 0 ? STREAMS : STREAMS.toReversed();
        return (i % 3 === 0 ? other : opened.store).commit(
          { streams, position, kv: i % 2 === 0 ? ['x', 'y'] : ['y', 'x'] },
          () => ({
            appends: streams.map((stream) => unkeyed(stream, i)),
            kv: ['x', 'y'].map((key) => ({ op: 'put', key, value: body(i), expiresAtMs: null })),
          }),
        );
      }),
    );
    const view = await View.replay(opened.store, STREAMS);
    for (const stream of STREAMS) t.equal(view.bodies(stream).length, 30);
  });
}
