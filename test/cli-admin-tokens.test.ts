/** The admin token file: its form, how it is made, and that it is read again without a restart. */
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { digestOf, isWellFormedSecret } from '../src/actors/secrets.js';
import { type AdminToken, parseAdminTokens, watchAdminTokens } from '../src/cli/admin-tokens.js';
import { type Clock, systemClock } from '../src/runtime/clock.js';
import type { Log, LogFields } from '../src/runtime/log.js';
import { systemRandom } from '../src/runtime/random.js';

const ANN = 'a'.repeat(32);
const BOB = `halo_admin_${'b'.repeat(40)}`;
const named = (name: string, token: string): AdminToken => ({ name, digest: digestOf(token) });

t.test('each line is a token, with or without a name', async (t) => {
  t.same(parseAdminTokens(`${ANN}\n`), [named('admin', ANN)]);
  t.same(parseAdminTokens(`\n ann:${ANN} \r\n\nbob:${BOB}\n`), [
    named('ann', ANN),
    named('bob', BOB),
  ]);
  t.same(parseAdminTokens(`${ANN}\n${BOB}`), [named('admin', ANN), named('admin-2', BOB)]);
  t.same(parseAdminTokens(`ann:${ANN}\nann:${BOB}`).length, 2, 'one name may have two tokens');
  t.same(parseAdminTokens(`ann:${ANN}\nann:${ANN}`).length, 1);
});

t.test('a token file that cannot be used says which line and nothing of it', async (t) => {
  const refused: ReadonlyArray<readonly [string, RegExp]> = [
    ['', /no token/],
    ['\n \n', /no token/],
    [`${ANN}\n${'s'.repeat(31)}`, /line 2 has a token of fewer/],
    [`name:${'s'.repeat(31)}`, /line 1 has a token of fewer/],
    [`${'s'.repeat(20)} ${'s'.repeat(20)}`, /line 1 has a token that cannot travel/],
    [`a:${ANN}:${ANN}`, /line 1 has a token that cannot travel/],
    [`${'ä'.repeat(40)}`, /cannot travel/],
    [`:${ANN}`, /line 1 has a name/],
    [`two words:${ANN}`, /line 1 has a name/],
    [`ann:${ANN}\nbob:${ANN}`, /line 2 repeats/],
    [Array.from({ length: 257 }, (_, index) => `${ANN}${index}`).join('\n'), /more than 256/],
  ];
  for (const [text, message] of refused) {
    t.throws(
      () => parseAdminTokens(text),
      { code: 'admin_tokens_invalid', message },
      text.slice(0, 50),
    );
    try {
      parseAdminTokens(text);
    } catch (error) {
      t.notMatch(String(error), /s{20}|a{20}|ä/);
    }
  }
});

/** A watch on a clock whose timers the test runs, with what it said. */
async function startWatch(path: string) {
  let due: (() => void) | undefined;
  const clock: Clock = {
    ...systemClock,
    schedule: (callback) => {
      due = callback;
      const cancel = (): void => {
        due = undefined;
      };
      return { cancel };
    },
  };
  const said: string[] = [];
  const say = (fields: LogFields, message: string): void =>
    void said.push(`${message} ${JSON.stringify(fields)}`);
  const log: Log = { debug: say, info: say, warn: say, error: say };
  const seen: Array<readonly AdminToken[]> = [];
  const watch = await watchAdminTokens({
    path,
    clock,
    random: systemRandom,
    log,
    onTokens: (tokens) => seen.push(tokens),
  });
  const poll = async (): Promise<void> => {
    const callback = due;
    due = undefined;
    callback?.();
    // One poll is done when it has armed the next one.
    const deadlineMs = Date.now() + 5_000;
    while (callback !== undefined && due === undefined && Date.now() < deadlineMs) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  return { watch, poll, seen, said, armed: () => due !== undefined };
}

t.test('a missing file is made with a fresh token that only its owner can read', async (t) => {
  const path = join(t.testdir({}), 'deep', 'admin-token');
  const previous = process.umask(0);
  t.teardown(() => process.umask(previous));
  const { watch, seen } = await startWatch(path);
  t.equal(watch.made, true);
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.equal(statSync(join(path, '..')).mode & 0o777, 0o700);
  const token = readFileSync(path, 'utf8').trim();
  t.equal(isWellFormedSecret(token, 'admin'), true);
  t.same(seen, [[named('admin', token)]]);
  t.same(readdirSync(join(path, '..')), ['admin-token'], 'no draft is left');
  const again = await startWatch(path);
  t.equal(again.watch.made, false);
  t.same(again.seen, seen);
});

t.test('processes that make the file at the same time agree on one token', async (t) => {
  const path = join(t.testdir({}), 'admin-token');
  const watches = await Promise.all(Array.from({ length: 8 }, () => startWatch(path)));
  t.equal(watches.filter(({ watch }) => watch.made).length, 1);
  t.equal(new Set(watches.map(({ seen }) => JSON.stringify(seen))).size, 1);
});

t.test('a changed file is in force after the next look, without a restart', async (t) => {
  const path = join(t.testdir({ tokens: `ann:${ANN}\n` }), 'tokens');
  const { poll, seen, said, watch } = await startWatch(path);
  await poll();
  t.equal(seen.length, 1, 'nothing new, nothing said');
  writeFileSync(path, `bob:${BOB}\n`);
  await poll();
  t.same(seen.at(-1), [named('bob', BOB)]);
  t.match(said.join('\n'), /"names":\["bob"\]/);
  t.notMatch(said.join('\n'), new RegExp(`${BOB}|${ANN}`), 'no token in the log');
  watch.close();
});

t.test('the swap of a symbolic link is noticed', async (t) => {
  const folder = t.testdir({
    old: { tokens: `ann:${ANN}\n` },
    new: { tokens: `bob:${BOB}\n` },
  });
  symlinkSync('old', join(folder, '..data'));
  symlinkSync('..data/tokens', join(folder, 'tokens'));
  const { poll, seen } = await startWatch(join(folder, 'tokens'));
  t.same(seen, [[named('ann', ANN)]]);
  symlinkSync('new', join(folder, '..next'));
  renameSync(join(folder, '..next'), join(folder, '..data'));
  await poll();
  t.same(seen.at(-1), [named('bob', BOB)]);
});

t.test('a file that turns bad leaves the last good tokens and says so once', async (t) => {
  const path = join(t.testdir({ tokens: `ann:${ANN}\n` }), 'tokens');
  const { poll, seen, said } = await startWatch(path);
  writeFileSync(path, 'short\n');
  await poll();
  await poll();
  t.equal(seen.length, 1);
  t.equal(said.length, 1);
  t.match(said[0], /the last good ones stay.*line 1/);
  rmSync(path);
  await poll();
  t.equal(said.length, 2, 'another reason is said');
  writeFileSync(path, `bob:${BOB}\n`);
  await poll();
  t.same(seen.at(-1), [named('bob', BOB)], 'and it recovers by itself');
});

t.test('a folder holds one token per file, named by the file', async (t) => {
  const folder = t.testdir({
    tokens: { ann: `${ANN}\n`, bob: `robert:${BOB}\n`, '..ignored': 'x' },
  });
  mkdirSync(join(folder, 'tokens', 'below'));
  const { seen, poll } = await startWatch(join(folder, 'tokens'));
  t.same(seen, [[named('ann', ANN), named('robert', BOB)]]);
  writeFileSync(join(folder, 'tokens', 'carl'), ANN);
  await poll();
  t.equal(seen.length, 1, 'one token under two names is refused');
  rmSync(join(folder, 'tokens', 'ann'));
  await poll();
  t.same(seen.at(-1), [named('robert', BOB), named('carl', ANN)]);
});

t.test('a bad file at start is refused, and a closed watch looks no more', async (t) => {
  const folder = t.testdir({ bad: 'short\n', good: `ann:${ANN}\n` });
  await t.rejects(startWatch(join(folder, 'bad')), { code: 'admin_tokens_invalid' });
  const { watch, armed, poll, seen } = await startWatch(join(folder, 'good'));
  watch.close();
  watch.close();
  t.equal(armed(), false);
  writeFileSync(join(folder, 'good'), `bob:${BOB}\n`);
  await poll();
  t.equal(seen.length, 1);
  chmodSync(join(folder, 'good'), 0o600);
});
