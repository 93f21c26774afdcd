/** `halo-verify` as a program: what it prints, how it ends, what it costs. */
import { once } from 'node:events';
import { createWriteStream, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { runHaloVerify } from '../src/cli/halo-verify/program.js';
import { CHECKS } from '../src/verify/findings.js';
import { goodChain } from './fixtures/evidence-cases.js';
import { ChainBuilder, exportOf } from './fixtures/evidence-chains.js';
import { rawVerifyCpuUs, runProgram, TEST_PUBLIC_PEM } from './fixtures/verify-program.js';

async function run(
  args: readonly string[],
  isTerminal = false,
  environment: Readonly<Record<string, string>> = {},
) {
  let out = '';
  let err = '';
  const console = {
    environment,
    out: (text: string) => {
      out += text;
    },
    err: (text: string) => {
      err += text;
    },
  };
  const exitCode = await runHaloVerify(args, console, { isTerminal });
  return { exitCode, out, err };
}

const good = exportOf(goodChain().lines);

t.test('a chain without a pin is verified and called self-asserted', async (t) => {
  const dir = t.testdir({ 'chain.jsonl': good });
  const { exitCode, out, err } = await run([join(dir, 'chain.jsonl')]);
  t.equal(exitCode, 0);
  t.match(out, /^verified\nrecords {3}9\nchain {5}[0-9a-f]{64}\nhead {6}8 [0-9a-f]{64}\n/);
  t.match(out, 'self-asserted');
  t.equal(err, '');
});

t.test('a pinned chain is verified against the key, as PEM too', async (t) => {
  const dir = t.testdir({ 'chain.jsonl': good, 'key.pem': TEST_PUBLIC_PEM });
  const { exitCode, out } = await run([join(dir, 'chain.jsonl'), '--key', join(dir, 'key.pem')]);
  t.equal(exitCode, 0);
  t.match(out, 'pinned    yes');
});

t.test('what is wrong is said with its place, what was expected and what was found', async (t) => {
  const dir = t.testdir({ 'chain.jsonl': good.replace('"seq":5', '"seq":50') });
  const path = join(dir, 'chain.jsonl');
  const { exitCode, out } = await run([path]);
  t.equal(exitCode, 10);
  t.match(out, /^NOT VERIFIED: tampered with\n/);
  t.match(out, 'record    5\ncheck     seq\nexpected  5\nfound     50\n');
  const json = JSON.parse((await run([path, '--json'])).out);
  t.same(json.firstBad, { seq: 5, check: 'seq', expected: '5', found: '50' });
  t.match(json, { ok: false, pinned: false, records: 5, status: 'tampered' });
});

t.test('what stands in a chain cannot steer a terminal', async (t) => {
  const dir = t.testdir({ 'chain.jsonl': `\u001b[2J\u009b2J\n${good}` });
  const { out } = await run([join(dir, 'chain.jsonl')]);
  t.notMatch(out, /[^\P{C}\n]/u);
});

t.test('what cannot be read says nothing about the chain', async (t) => {
  const dir = t.testdir({ empty: {}, file: 'x' });
  for (const path of [join(dir, 'missing'), join(dir, 'empty'), join(dir, 'file', 'x')]) {
    const { exitCode, out, err } = await run([path]);
    t.equal(exitCode, 12);
    t.equal(out, '');
    t.match(err, /^halo-verify: it cannot be read: /);
  }
});

t.test('a wrong command line is told apart from a wrong chain', async (t) => {
  const privatePem = TEST_PUBLIC_PEM.replaceAll('PUBLIC', 'PRIVATE');
  const dir = t.testdir({
    chain: good,
    privatePem,
    garbage: 'x',
    record: `${goodChain().lines[3]}\n`,
  });
  const chain = join(dir, 'chain');
  const wrong: ReadonlyArray<readonly [args: readonly string[], message: RegExp]> = [
    [[], /missing what to verify/],
    [['--unknown', chain], /unknown option/],
    [[chain, '--key', join(dir, 'missing')], /--key cannot be read: ENOENT/],
    [[chain, '--key', join(dir, 'privatePem')], /holds a private one/],
    [[chain, '--key', join(dir, 'garbage')], /takes an Ed25519 public key/],
    [[chain, '--checkpoint', join(dir, 'garbage')], /takes the record of a checkpoint/],
    [[chain, '--checkpoint', join(dir, 'record')], /takes the record of a checkpoint/],
  ];
  for (const [args, message] of wrong) {
    const { exitCode, err } = await run(args);
    t.equal(exitCode, 2, args.join(' '));
    t.match(err, message);
  }
  t.equal((await run(['--help'])).exitCode, 0);
});

t.test('progress is shown on a terminal only, and is gone at the end', async (t) => {
  const dir = t.testdir({ chain: good });
  const { err } = await run([join(dir, 'chain')], true);
  t.match(err, /\r9 records, 100 %/);
  t.ok(err.endsWith('\r\u001b[K'));
  t.equal((await run([join(dir, 'chain'), '--json'], true)).err, '');
});

t.test('lines that lie across pieces of the file are read as they are', async (t) => {
  const chain = new ChainBuilder();
  for (let index = 0; index < 20; index += 1) chain.add('x.y', { note: '€'.repeat(40_000) });
  const dir = t.testdir({ chain: exportOf(chain.checkpoint().lines) });
  t.match(JSON.parse((await run([join(dir, 'chain'), '--json'])).out), { ok: true, records: 22 });
});

t.test('a file without line ends is not read to its end', async (t) => {
  const dir = t.testdir({ chain: 'x'.repeat(5_000_000) });
  const { exitCode, out } = await run([join(dir, 'chain'), '--json']);
  t.equal(exitCode, 10);
  t.match(JSON.parse(out).firstBad, { seq: 0, check: 'line' });
});

t.test('a line that is cut between two segments is named', async (t) => {
  const lines = goodChain().lines;
  const dir = t.testdir({
    '0000000000000000.jsonl': exportOf(lines.slice(0, 4)).slice(0, -5),
    '0000000000000004.jsonl': exportOf(lines.slice(4)),
  });
  const { exitCode, out } = await run([dir, '--json']);
  t.equal(exitCode, 10);
  t.match(JSON.parse(out).firstBad, { seq: 3, check: 'line' });
});

t.test('a data directory is verified while a server writes into it', async (t) => {
  const lines = goodChain().lines;
  const dir = t.testdir({
    chain: {
      '0000000000000000.jsonl': exportOf(lines.slice(0, 4)),
      '0000000000000004.jsonl': `${exportOf(lines.slice(4, 6))}${lines[6]?.slice(0, 100)}`,
      'published.json': '{}',
    },
    'log-0000000001.jsonl': 'x',
  });
  const { exitCode, out } = await run(['--data-dir', dir, '--json']);
  t.equal(exitCode, 0, out);
  t.match(JSON.parse(out), { ok: true, records: 6 }, 'a line that has just begun does not count');
  t.equal((await run([join(dir, 'chain')])).exitCode, 11, 'where nobody writes, it does');
  t.equal((await run(['--data-dir', join(dir, 'chain')])).exitCode, 12, 'no data directory');
  await writeFile(join(dir, 'chain', '0000000000000004.jsonl'), exportOf(lines.slice(5)));
  const gap = await run(['--data-dir', dir, '--json']);
  t.equal(gap.exitCode, 10);
  t.match(JSON.parse(gap.out).firstBad, { seq: 4, check: 'seq' });
});

t.test('whatever is done to a data directory shows as it does in an export', async (t) => {
  const vectors = fileURLToPath(new URL('../../test/vectors/', import.meta.url));
  let tried = 0;
  for (const line of readFileSync(join(vectors, 'cases.jsonl'), 'utf8').trim().split('\n')) {
    const { name, file, status, seq, check } = JSON.parse(line);
    if (file === undefined || status !== 'tampered' || /pinned/.test(check)) continue;
    const segment = readFileSync(join(vectors, file));
    const dir = t.testdir({ chain: { '0000000000000000.jsonl': segment } });
    const { exitCode, out } = await run(['--data-dir', dir, '--json']);
    t.equal(exitCode, 10, name);
    t.match(JSON.parse(out).firstBad, { seq, check }, name);
    tried += 1;
  }
  t.ok(tried > 40, `${tried} of them`);
});

t.test('what is to be verified is named once; the environment only fills in', async (t) => {
  const dir = t.testdir({ good, data: { chain: { '0000000000000000.jsonl': good } } });
  const environment = { HALO_DATA_DIR: join(dir, 'data') };
  t.equal((await run([], false, environment)).exitCode, 0);
  t.equal((await run([join(dir, 'good')], false, { HALO_DATA_DIR: 'none' })).exitCode, 0);
  const both = { ...environment, HALO_DATABASE_URL_FILE: 'x' };
  t.equal((await run([], false, both)).exitCode, 2);
  t.equal((await run(['--data-dir', join(dir, 'data')], false, both)).exitCode, 0);
  t.equal((await run([join(dir, 'good'), '--data-dir', dir])).exitCode, 2);
});

t.test('the names of checks are those of the result', async (t) => {
  t.equal(new Set(CHECKS).size, CHECKS.length);
});

/** With HALO_TEST_EVIDENCE_RECORDS=1000000 the figures of the page on performance. */
const records = Number(process.env['HALO_TEST_EVIDENCE_RECORDS'] ?? 20_000);
const RSS_MAX_MB = 300;

t.test('a long chain is verified in bounded memory', { timeout: 900_000 }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'evidence-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'long.jsonl');
  const file = createWriteStream(path);
  const chain = new ChainBuilder();
  for (let written = 0; written < records; ) {
    while (chain.records.length < 1000) {
      chain.add('decision.made', {
        action: 'read',
        decision: 'allow',
        resource: `report/${written}`,
      });
    }
    if (written + chain.records.length >= records) chain.checkpoint();
    const text = exportOf(chain.lines);
    written += chain.records.length;
    // Only the head is needed to go on.
    chain.forget();
    if (!file.write(text)) await once(file, 'drain');
  }
  file.end();
  await once(file, 'close');
  const rawUs = rawVerifyCpuUs();
  const { exitCode, out, rssMb, cpuUs, seconds } = await runProgram(path);
  t.equal(exitCode, 0, out);
  const found = JSON.parse(out).records as number;
  t.ok(found >= records);
  const cores = availableParallelism();
  const rate = found / seconds;
  const eachUs = cpuUs / found;
  t.comment(`${found} records in ${seconds.toFixed(1)} s, ${Math.round(rate)}/s on ${cores} cores`);
  t.comment(`${rssMb.toFixed(0)} MB; ${eachUs.toFixed(1)} µs of processor for each record`);
  t.comment(`a signature alone ${rawUs.toFixed(1)} µs: ${(rawUs / eachUs).toFixed(2)} of that`);
  t.comment(`by the clock ${((rate * rawUs) / 1e6 / cores).toFixed(2)} of raw verification`);
  t.ok(rssMb < RSS_MAX_MB, `${rssMb.toFixed(0)} MB`);
});

t.test('a tampered record deep inside is named by the program itself', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'evidence-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const lines = new ChainBuilder().addSome(2999).checkpoint().lines;
  const sig = JSON.parse(lines[1500]!).sig as string;
  const flipped = `${sig[0] === '0' ? '1' : '0'}${sig.slice(1)}`;
  await writeFile(
    join(dir, 'chain'),
    exportOf(lines.with(1500, lines[1500]!.replace(sig, flipped))),
  );
  const { exitCode, out } = await runProgram(join(dir, 'chain'));
  t.equal(exitCode, 10);
  t.match(JSON.parse(out), { records: 1500, firstBad: { seq: 1500, check: 'signature' } });
});
