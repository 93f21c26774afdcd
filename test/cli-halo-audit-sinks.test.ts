/** `halo audit sinks`, and the route behind it. */
import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runHalo } from '../src/cli/halo/program.js';
import { failure } from '../src/runtime/failure.js';
import { call } from './fixtures/http-client.js';
import { ADMIN_TOKEN, type FrontSetup, startFront } from './fixtures/http-front.js';
import { keepAlive } from './fixtures/keep-alive.js';

keepAlive(t);

async function open(t: Test, setup: FrontSetup = {}) {
  const front = await startFront(setup);
  t.teardown(() => front.close());
  const tokenFile = join(t.testdir({ token: ADMIN_TOKEN }), 'token');
  chmodSync(tokenFile, 0o600);
  const halo = async (...args: readonly string[]) => {
    const said = { out: '', err: '' };
    const exitCode = await runHalo(['audit', 'sinks', ...args], {
      environment: { HALO_URL: front.url, HALO_TOKEN_FILE: tokenFile },
      out: (text) => {
        said.out += text;
      },
      err: (text) => {
        said.err += text;
      },
    });
    return { exitCode, ...said };
  };
  return { front, halo };
}

t.test('an auditor is told of each sink how far it is and what went wrong', async (t) => {
  const { front } = await open(t);
  const answer = await call(front.url, 'GET', '/api/v1/audit/sinks', { bearer: ADMIN_TOKEN });
  t.equal(answer.status, 200);
  t.strictSame(answer.json, {
    items: [
      {
        head: 4,
        restored: null,
        name: 'siem',
        type: 'webhook',
        leader: 'r1.1',
        cursor: 3,
        lagRecords: 1,
        lagSeconds: 2,
        lastError: null,
        lastDeliveredAt: '2026-01-31T12:00:00.000Z',
      },
      {
        head: 4,
        name: 'archive',
        type: 'file',
        leader: null,
        cursor: -1,
        lagRecords: 5,
        lagSeconds: null,
        lastDeliveredAt: null,
        lastError: { code: 'ENOSPC', message: 'm', at: '2026-01-31T12:00:00.000Z', attempts: 2 },
        restored: { at: '2026-01-31T12:00:00.000Z', resumedAfterSeq: -1 },
      },
    ],
  });
  t.equal((await call(front.url, 'GET', '/api/v1/audit/sinks')).status, 401);
  t.equal((await call(front.url, 'POST', '/api/v1/audit/sinks')).status, 405);
});

t.test('the command shows a line for each, and ends with 1 where one fails', async (t) => {
  const { halo } = await open(t);
  const { exitCode, out } = await halo();
  t.equal(exitCode, 1);
  t.match(out, /^NAME +TYPE +LEADER +HAS +OF +LAG +DELIVERED +MORE\n/);
  t.match(out, /\nsiem +webhook +r1\.1 +3 +4 +1 \(2 s\) +2026-01-31T12:00:00\.000Z\n/);
  t.match(
    out,
    /\narchive +file +- +-1 +4 +5 +never +ENOSPC: m \(attempt 2\); restored 2026-.*: got /,
  );
  const json = await halo('--json');
  t.equal(JSON.parse(json.out).items.length, 2);
});

t.test('without sinks it says so and ends with 0', async (t) => {
  const { halo } = await open(t, { auditExport: () => ({ answer: [] }) });
  t.strictSame(await halo(), { exitCode: 0, out: 'The chain is forwarded nowhere.\n', err: '' });
});

t.test('a store that is away is told as such', async (t) => {
  const { halo } = await open(t, { auditExport: () => ({ answer: failure('store_unavailable') }) });
  const { exitCode, out, err } = await halo();
  t.equal(exitCode, 1);
  t.equal(out, '');
  t.match(err, /^halo: .*store/i);
});
