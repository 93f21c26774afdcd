/** The test vectors: written as they should be, and judged alike by two verifiers. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { runHaloVerify } from '../src/cli/halo-verify/program.js';
import { allCases, caseLine } from './fixtures/evidence-cases.js';
import { publicHexOf, TEST_KEYS } from './fixtures/evidence-chains.js';

const folder = join(process.cwd(), 'test/vectors');
const cases = allCases();

/** What the command prints as JSON, and its exit code. */
async function runVerify(...args: readonly string[]) {
  let out = '';
  const console = {
    environment: {},
    out: (text: string) => {
      out += text;
    },
    err: (text: string) => t.comment(text),
  };
  const exitCode = await runHaloVerify([...args, '--json'], console, { isTerminal: false });
  return { exitCode, result: out === '' ? undefined : JSON.parse(out) };
}

t.test('the vectors in the folder are those that the generator writes', async (t) => {
  const named = cases.map(({ name }) => name);
  t.equal(new Set(named).size, named.length, 'every name once');
  t.equal(readFileSync(join(folder, 'cases.jsonl'), 'utf8'), cases.map(caseLine).join(''));
  for (const { files } of cases) {
    for (const [path, content] of files) {
      t.ok(readFileSync(join(folder, path)).equals(content), path);
    }
  }
  t.equal(
    publicHexOf(TEST_KEYS[0]),
    'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a',
    'signed with the keys of RFC 8032',
  );
});

t.test('halo-verify says of every vector what it must', async (t) => {
  const exitCodes = { verified: 0, tampered: 10, incomplete: 11, unreadable: 12 };
  const keys = t.testdir(
    Object.fromEntries(cases.map(({ name, key }) => [name, `${key ?? ''}\n`])),
  );
  for (const { name, file, directory, key, checkpoint, ...wanted } of cases) {
    const args = [join(folder, file ?? directory ?? '')];
    if (key !== undefined) args.push('--key', join(keys, name));
    if (checkpoint !== undefined) args.push('--checkpoint', join(folder, checkpoint));
    const { exitCode, result } = await runVerify(...args);
    const { status, pinned, records, firstBad } = result;
    t.equal(exitCode, exitCodes[wanted.status], `${name} ends as it must`);
    t.match(
      { status, pinned, records, seq: firstBad?.seq, check: firstBad?.check },
      {
        status: wanted.status,
        pinned: wanted.pinned,
        records: wanted.records,
        seq: wanted.seq,
        check: wanted.check,
      },
      name,
    );
  }
});

t.test('a verifier in another language, written from the page alone, agrees', async (t) => {
  const python = spawnSync('python3', ['--version']);
  if (python.status !== 0) {
    t.comment('there is no python3 here');
    return;
  }
  const script = join(folder, 'verify.py');
  const run = spawnSync('python3', [script, '--cases', join(folder, 'cases.jsonl')], {
    encoding: 'utf8',
    timeout: 120_000,
  });
  t.equal(run.status, 0, run.stdout + run.stderr);
  t.match(run.stdout, `${cases.length} cases, 0 wrong`);
  const one = spawnSync('python3', [script, join(folder, 'dropped.jsonl')], { encoding: 'utf8' });
  t.equal(one.status, 10);
});

t.test('the page names every field, every kind and every check', async (t) => {
  const page = readFileSync(join(process.cwd(), 'docs/evidence.md'), 'utf8');
  const checks = new Set(cases.flatMap(({ check }) => check ?? []));
  for (const check of checks) t.match(page, `\`${check}\``, check);
  t.ok(existsSync(join(folder, 'verify.py')));
});
