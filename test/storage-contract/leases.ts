/** Contract: leases, and units of work that are done only under a term. */
import t from 'tap';
import type { ClaimedLease, Fence, LeaseStore } from '../../src/runtime/lease.js';
import { seededRandom } from '../../src/runtime/random.js';
import { STEP_DOWN_PREFIX } from '../../src/storage/lease-table.js';
import type { ContractBackend } from '../storage-contract.js';
import { body, codeOf, LIFE_MS, pass, unkeyed, View } from './view.js';

const LONG_MS = 60_000;

async function claim(
  leases: LeaseStore,
  holder: string,
  ttlMs = LONG_MS,
  lease = 'l',
): Promise<ClaimedLease> {
  const [answer] = await leases.claim([{ lease, holder }], ttlMs);
  if (answer === undefined) throw new Error('a claim was not answered');
  return answer;
}

export function registerLeases(backend: ContractBackend): void {
  registerClaims(backend);
  registerTakeovers(backend);
  registerFences(backend);
  registerFencedInterleavings(backend);
}

function registerClaims(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a live lease is its holder’s alone, and keeps its token`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const [one, other] = [opened.leases(), opened.leases()];
    const first = await claim(one, 'a');
    t.match(first, { lease: 'l', granted: true, holder: 'a', stepDownToken: null });
    t.ok(first.token >= 1 && first.remainingMs > LONG_MS - 5_000 && first.remainingMs <= LONG_MS);
    const refused = await claim(other, 'b');
    t.match(refused, { granted: false, holder: 'a', token: first.token });
    t.ok(refused.remainingMs > LONG_MS - 10_000, 'and says for how long');
    const renewed = await claim(other, 'a', 2 * LONG_MS);
    t.match(renewed, { granted: true, holder: 'a', token: first.token });
    const [row] = await opened.store.leases();
    t.match(row, { lease: 'l', holder: 'a', token: first.token });
    t.ok((row?.remainingMs ?? 0) > LONG_MS, 'a renewal lengthens it');
  });

  t.test(`${name}: many leases are claimed at once and answered in their order`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const leases = opened.leases();
    await claim(leases, 'other', LONG_MS, 'm07');
    const names = Array.from({ length: 50 }, (_, i) => `m${String((i * 7) % 50).padStart(2, '0')}`);
    const claims = names.map((lease) => ({ lease, holder: `h-${lease}` }));
    const answers = await leases.claim(claims, LONG_MS);
    t.same(
      answers.map(({ lease }) => lease),
      names,
    );
    for (const { lease, granted, holder } of answers) {
      t.same([granted, holder], lease === 'm07' ? [false, 'other'] : [true, `h-${lease}`]);
    }
    const rows = await opened.store.leases();
    t.same(
      rows.map(({ lease }) => lease),
      [...names].sort(),
    );
    t.same(await leases.claim([], LONG_MS), []);
  });

  t.test(`${name}: of twenty candidates at once exactly one is granted a lease`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const candidates = Array.from({ length: 20 }, (_, i) => `c${i}`);
    const stores = candidates.map(() => opened.leases());
    const answers = await Promise.all(candidates.map((who, i) => claim(stores[i]!, who)));
    t.equal(answers.filter(({ granted }) => granted).length, 1);
  });

  t.test(`${name}: a step-down that is asked for is told with the next claim`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const leases = opened.leases();
    const { token } = await claim(leases, 'a');
    await opened.store.kv.put(`${STEP_DOWN_PREFIX}l`, String(token), LIFE_MS);
    t.equal((await claim(leases, 'a')).stepDownToken, token);
    t.equal((await claim(leases, 'a', LONG_MS, 'm')).stepDownToken, null, 'of that lease only');
    await pass(opened, LIFE_MS + 50);
    t.equal((await claim(leases, 'a')).stepDownToken, null, 'until it expires');
  });
}

function registerTakeovers(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: an expired lease is taken under a greater token, and is gone`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const leases = opened.leases();
    const first = await claim(leases, 'a', LIFE_MS);
    await pass(opened, LIFE_MS + 50);
    const [row] = await opened.store.leases();
    t.ok((row?.remainingMs ?? 1) <= 0, 'it is listed as expired');
    const second = await claim(leases, 'b', LIFE_MS);
    t.match(second, { granted: true, holder: 'b' });
    t.ok(second.token > first.token);
    t.match(await claim(leases, 'a'), { granted: false, holder: 'b', token: second.token });
    await pass(opened, LIFE_MS + 50);
    const third = await claim(leases, 'b');
    t.ok(third.granted && third.token > second.token, 'even its own holder begins a new term');
  });

  t.test(
    `${name}: a lease that is given back is free at once; an old term frees nothing`,
    async (t) => {
      const opened = await backend.open();
      t.teardown(() => opened.close());
      const leases = opened.leases();
      const first = await claim(leases, 'a');
      await leases.release([{ ...first, token: first.token + 1 }]);
      await leases.release([{ ...first, holder: 'b' }]);
      t.match(await claim(leases, 'b'), { granted: false }, 'neither was its holder’s term');
      await leases.release([first]);
      const second = await claim(leases, 'b');
      t.ok(second.granted && second.token > first.token);
      await leases.release([first]);
      t.match(await claim(leases, 'c'), { granted: false, holder: 'b' });
      await leases.release([]);
    },
  );
}

function registerFences(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a unit under a fence is done in its term and at no other time`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const leases = opened.leases();
    const view = await View.replay(opened.store, ['s']);
    const write = (fence: Fence, value: number): Promise<string | undefined> =>
      codeOf(() =>
        view.commit({ fence }, () => ({
          appends: [unkeyed('s', value)],
          kv: [{ op: 'put', key: `k${value}`, value: 'v', expiresAtMs: null }],
        })),
      );
    const fence = await claim(leases, 'a', LIFE_MS * 2);
    t.equal(await write(fence, 1), undefined);
    t.equal(await write({ ...fence, token: fence.token + 1 }, 2), 'fenced');
    t.equal(await write({ ...fence, holder: 'b' }, 3), 'fenced');
    t.equal(await write({ ...fence, lease: 'never claimed' }, 4), 'fenced');
    await pass(opened, LIFE_MS * 2 + 50);
    t.equal(await write(fence, 5), 'fenced', 'it expired, though nobody took it');
    const next = await claim(leases, 'b');
    t.equal(await write(fence, 6), 'fenced');
    t.equal(await write(next, 7), undefined);
    await leases.release([next]);
    t.equal(await write(next, 8), 'fenced', 'it was given back');
    await view.catchUp();
    t.same(view.bodies('s'), [body(1), body(7)], 'nothing was written of those refused');
    const keys = Array.from({ length: 8 }, (_, i) => `k${i + 1}`);
    t.same([...(await opened.store.kv.get(keys)).keys()].sort(), ['k1', 'k7']);
  });
}

/** How long the terms of the random schedule are: about as long as a few of its commits. */
const SHORT_TTL_MS = 40;
const STEPS = 60;

function registerFencedInterleavings(backend: ContractBackend): void {
  t.test(
    `${backend.name}: the tokens of fenced writes never go back, whatever meets`,
    async (t) => {
      const opened = await backend.open();
      t.teardown(() => opened.close());
      const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e9));
      const random = seededRandom(seed);
      const writer = async (who: string): Promise<number> => {
        const store = await opened.another();
        const leases = opened.leases();
        const view = await View.replay(store, ['s']);
        let written = 0;
        let term: Fence | undefined;
        for (let step = 0; step < STEPS; step += 1) {
          if (term === undefined || random.fraction() < 0.3) {
            const answer = await claim(leases, who, SHORT_TTL_MS);
            // A claim that is refused leaves the old term in use: that is what the fence is for.
            if (answer.granted) term = answer;
          }
          if (random.fraction() < 0.3) await pass(opened, random.fraction() * SHORT_TTL_MS);
          if (term === undefined) continue;
          const fence = term;
          const append = unkeyed('s', fence.token);
          const code = await codeOf(() => view.commit({ fence }, () => ({ appends: [append] })));
          if (code === undefined) written += 1;
          else if (code !== 'fenced') throw new Error(`seed ${seed}: ${code}`);
        }
        return written;
      };
      const written = await Promise.all(['a', 'b', 'c'].map(writer));
      const view = await View.replay(opened.store, ['s']);
      const tokens = view.applied.map((record) => JSON.parse(record.body)[2] as number);
      t.equal(
        tokens.length,
        written.reduce((sum, one) => sum + one, 0),
        `seed ${seed}`,
      );
      t.same(
        tokens,
        [...tokens].sort((a, b) => a - b),
        `seed ${seed}`,
      );
      t.ok(new Set(tokens).size > 1, `seed ${seed}: there was more than one term`);
    },
  );
}
