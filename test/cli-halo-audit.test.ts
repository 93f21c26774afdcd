/** What `halo audit` asks and says, against a front server before a chain that tests make. */
import { chmodSync } from 'node:fs';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runHalo } from '../src/cli/halo/program.js';
import { failure } from '../src/runtime/failure.js';
import { ChainBuilder, exportOf, publicHexOf, TEST_KEYS } from './fixtures/evidence-chains.js';
import {
  ADMIN_TOKEN,
  type Asked,
  EPOCH,
  type FrontSetup,
  startFront,
  until,
} from './fixtures/http-front.js';
import { keepAlive } from './fixtures/keep-alive.js';

keepAlive(t);

/** Answers from a chain as it is when it is asked. */
function auditOf(chain: ChainBuilder): (asked: Asked) => { answer: unknown } {
  return ({ kind, payload }) => {
    const { records } = chain;
    const head = { seq: records.length - 1, hash: chain.head.hash };
    const { afterSeq = -1, limit, kind: ofKind } = payload as Record<string, any>;
    const isWanted = ({ text }: { text: string }): boolean =>
      ofKind === undefined || JSON.parse(text).kind === ofKind;
    switch (kind) {
      case 'page': {
        const page = records.filter((one) => one.seq > afterSeq && isWanted(one)).slice(0, limit);
        const last = page.at(-1)?.seq ?? head.seq;
        const next = ofKind === undefined && last < head.seq ? { nextAfterSeq: last } : {};
        return { answer: { records: page, head, verifiedUpTo: -1, ...next } };
      }
      case 'records':
        return { answer: records.filter((one) => one.seq > afterSeq).slice(0, limit) };
      case 'tail': {
        const newest = records.filter(isWanted).reverse().slice(0, limit);
        return { answer: { records: newest, head, verifiedUpTo: -1 } };
      }
      case 'checkpoint':
        return { answer: chain.checkpoint().records.at(-1) };
      case 'rotateKey':
        return { answer: chain.rotate(TEST_KEYS[1]).records.at(-1) };
      default:
        return { answer: failure('chain_not_rewound', 'nothing is lost') };
    }
  };
}

async function open(t: Test, setup: FrontSetup) {
  const front = await startFront(setup);
  t.teardown(() => front.close());
  const dir = t.testdir({ token: ADMIN_TOKEN });
  const tokenFile = join(dir, 'token');
  chmodSync(tokenFile, 0o600);
  const said = { out: '', err: '' };
  const halo = async (args: readonly string[], isTerminal = false) => {
    const before = { out: said.out.length, err: said.err.length };
    const exitCode = await runHalo(args, {
      environment: { HALO_URL: front.url, HALO_TOKEN_FILE: tokenFile },
      isTerminal,
      out: (text) => {
        said.out += text;
      },
      err: (text) => {
        said.err += text;
      },
    });
    return { exitCode, out: said.out.slice(before.out), err: said.err.slice(before.err) };
  };
  return { front, halo, dir, said };
}

t.test('tail shows the newest records, the newest last, a line each', async (t) => {
  const chain = new ChainBuilder()
    .addSome(4)
    .add('test.rare', { note: 'a\u001b[2J\u009b2J' })
    .addSome(1);
  const { halo, front } = await open(t, { audit: auditOf(chain) });
  const { exitCode, out } = await halo(['audit', 'tail', '-n', '2']);
  t.equal(exitCode, 0);
  const lines = out.split('\n');
  t.equal(lines.length, 3);
  t.match(lines[0], /^ {7}5 {2}2026-.*Z {2}test\.rare {2}admin alice {2}\{"note":/);
  t.match(lines[1], /^ {7}6 {2}/);
  t.notMatch(out, /[^\P{C}\n]/u, 'what stands in a record cannot steer a terminal');
  const json = await halo(['audit', 'tail', '--lines', '3', '--kind', 'test.rare', '--json']);
  t.equal(json.out, `${chain.lines[5]}\n`, 'as the record is');
  t.same(front.audit.last('tail')?.payload, { limit: 3, kind: 'test.rare' });
  for (const args of [
    ['-n', '0'],
    ['-n', '501'],
    ['--for', '1s'],
    ['--follow', '--for', '1ms'],
  ]) {
    t.equal((await halo(['audit', 'tail', ...args])).exitCode, 2, args.join(' '));
  }
});

t.test('tail goes on with what is chained, each once, also past an outage', async (t) => {
  const chain = new ChainBuilder().addSome(2);
  const answer = auditOf(chain);
  let isAway = false;
  const { halo, said } = await open(t, {
    audit: (asked) => (isAway ? { answer: failure('store_unavailable') } : answer(asked)),
  });
  const ended = halo(['audit', 'tail', '-n', '1', '--follow', '--for', '6s', '--json']);
  const seqs = (): number[] =>
    said.out
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line).seq);
  await until(() => seqs().length === 1);
  chain.addSome(3);
  await until(() => seqs().length === 4);
  isAway = true;
  chain.addSome(600);
  await until(() => said.err.includes('trying again'));
  isAway = false;
  await until(() => seqs().length === 604);
  t.equal((await ended).exitCode, 0);
  t.same(
    seqs(),
    Array.from({ length: 604 }, (_, index) => index + 2),
    'from the newest on, without a gap',
  );
});

t.test(
  'an export is verified from the same command, and by a checkpoint kept before',
  async (t) => {
    const chain = new ChainBuilder().addSome(200);
    const { halo, dir } = await open(t, { audit: auditOf(chain) });
    const kept = await halo(['audit', 'checkpoint', join(dir, 'kept')]);
    t.equal(kept.exitCode, 0);
    t.match(kept.out, 'chain.checkpoint');
    t.equal(await readFile(join(dir, 'kept'), 'utf8'), `${chain.lines.at(-1)}\n`);
    const path = join(dir, 'export.jsonl');
    await writeFile(path, 'what was there before');
    const { exitCode, out, err } = await halo(['audit', 'export', path], true);
    t.equal(exitCode, 0, err);
    t.match(out, /^file {8}.*\nrecords {5}203\ncheckpoint {2}202 [0-9a-f]{64}\n$/);
    t.match(err, /\r[\d,]+ records, \d+ %/);
    t.ok(err.endsWith('\r\u001b[K'), 'progress, which is gone at the end');
    t.equal(await readFile(path, 'utf8'), exportOf(chain.lines));
    t.same((await readdir(dir)).sort(), ['export.jsonl', 'kept', 'token'], 'and nothing else');
    await writeFile(join(dir, 'key'), publicHexOf(TEST_KEYS[0]));
    const pins = ['--key', join(dir, 'key'), '--checkpoint', join(dir, 'kept')];
    const verified = await halo(['audit', 'verify', path, ...pins]);
    t.equal(verified.exitCode, 0);
    t.match(verified.out, 'pinned    yes');
    await writeFile(path, exportOf(chain.lines.slice(0, -2)));
    t.equal((await halo(['audit', 'verify', path, '--json'])).exitCode, 11);
    const standard = await halo(['audit', 'export', '-']);
    t.equal(standard.exitCode, 0);
    t.equal(standard.out, exportOf(chain.lines), 'to the standard output, and nothing else there');
  },
);

t.test('an export that is cut leaves no file, and what was there stays', async (t) => {
  const chain = new ChainBuilder().addSome(300);
  const answer = auditOf(chain);
  let isCut = true;
  const { halo, dir } = await open(t, {
    audit: (asked) => {
      const { afterSeq } = asked.payload as { afterSeq?: number };
      const fails = isCut && asked.kind === 'records' && (afterSeq ?? 0) > 100;
      return fails ? { answer: failure('store_unavailable') } : answer(asked);
    },
  });
  await writeFile(join(dir, 'old'), 'old');
  for (const name of ['old', 'new']) {
    const { exitCode, err } = await halo(['audit', 'export', join(dir, name)]);
    t.equal(exitCode, 1);
    t.match(err, /cut off/);
  }
  t.same((await readdir(dir)).sort(), ['old', 'token']);
  t.equal(await readFile(join(dir, 'old'), 'utf8'), 'old');
  const standard = await halo(['audit', 'export', '-']);
  t.equal(standard.exitCode, 1, 'what was written there already is told to be cut');
  isCut = false;
  t.equal((await halo(['audit', 'export', join(dir, 'none', 'x')])).exitCode, 1);
});

t.test('statements tell of their record, and what is refused of the reason', async (t) => {
  const chain = new ChainBuilder().addSome(2);
  const { halo, front } = await open(t, { audit: auditOf(chain) });
  const rotated = await halo(['audit', 'rotate-key', '--to', TEST_KEYS[1].id]);
  t.equal(rotated.exitCode, 0, rotated.err);
  t.match(rotated.out, `from key  ${TEST_KEYS[0].id}\nto key    ${TEST_KEYS[1].id}\n`);
  t.match(front.audit.last('rotateKey')?.payload, { nextKeyId: TEST_KEYS[1].id });
  const accepted = await halo(['audit', 'accept-restore']);
  t.equal(accepted.exitCode, 1);
  t.match(accepted.err, 'chain_not_rewound');
  const rotate = await halo(['audit', 'rotate']);
  t.equal(rotate.exitCode, 1);
  t.match(rotate.err, 'rotate by themselves');
});

t.test('on PostgreSQL the rotation of segments is refused with the reason', async (t) => {
  const status = { replica: 'r', backend: 'postgres', epoch: EPOCH, version: '1', actors: [] };
  const { halo } = await open(t, { status: async () => status });
  const { exitCode, err } = await halo(['audit', 'rotate']);
  t.equal(exitCode, 1);
  t.match(err, 'the chain is one table');
});
