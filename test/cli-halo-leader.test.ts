/** `halo leader`: what it prints of leases and terms, and what it asks for. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runHalo } from '../src/cli/halo/program.js';
import { failure } from '../src/runtime/failure.js';
import { ADMIN_TOKEN, type FrontSetup, startFront } from './fixtures/http-front.js';

async function leader(
  t: Test,
  setup: FrontSetup,
  ...args: string[]
): Promise<{ exitCode: number; out: string; err: string }> {
  const front = await startFront(setup);
  t.teardown(() => front.close());
  const tokenFile = join(t.testdir(), 'token');
  writeFileSync(tokenFile, `root:${ADMIN_TOKEN}\n`, { mode: 0o600 });
  let out = '';
  let err = '';
  const common = ['--url', front.url, '--token-file', tokenFile];
  const exitCode = await runHalo(['leader', ...args, ...common], {
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
    environment: {},
  });
  return { exitCode, out, err };
}

t.test('leases are listed with what is left of them', async (t) => {
  for (const args of [[], ['list']]) {
    const { exitCode, out } = await leader(t, {}, ...args);
    t.equal(exitCode, 0);
    t.equal(
      out,
      [
        'LEASE              HOLDER  TOKEN  LEFT',
        'audit-export-siem  r2.1    3      nobody has it',
        'controller         r1.1    7      12.3 s',
        '',
      ].join('\n'),
    );
  }
  const { out } = await leader(t, {}, 'list', '--json');
  t.match(JSON.parse(out), { items: [{ lease: 'audit-export-siem' }, { remainingMs: 12_345 }] });
});

t.test('the terms of a lease are listed, the newest first', async (t) => {
  const { exitCode, out } = await leader(t, {}, 'history', 'controller');
  t.equal(exitCode, 0);
  t.equal(out, 'TOKEN  HOLDER  BEGAN\n7      r1.1    2026-01-31T12:00:00.000Z\n');
});

t.test('who has a lease is asked to give it back', async (t) => {
  const asked: unknown[] = [];
  const setup: FrontSetup = {
    leader: ({ kind, payload }) => {
      asked.push([kind, payload]);
      return { answer: { lease: 'controller', holder: 'r1.1', token: 7 } };
    },
  };
  const { exitCode, out } = await leader(t, setup, 'step-down', 'controller');
  t.equal(exitCode, 0);
  t.equal(out, 'r1.1 was asked to give controller back, term 7.\n');
  t.same(asked, [['stepDown', { lease: 'controller', by: 'root' }]]);
});

t.test('a lease that there is not is refused by its code, and a name by its form', async (t) => {
  const setup: FrontSetup = { leader: () => ({ answer: failure('lease_unknown', 'm') }) };
  for (const args of [
    ['step-down', 'nothing'],
    ['history', 'nothing'],
  ]) {
    const { exitCode, err } = await leader(t, setup, ...args);
    t.equal(exitCode, 1);
    t.match(err, /There is no such lease.*lease_unknown/);
  }
  const { exitCode, err } = await leader(t, {}, 'history', 'NOT/a lease');
  t.equal(exitCode, 1);
  t.match(err, /validation_failed/);
  t.equal((await leader(t, {}, 'step-down')).exitCode, 2);
});
