/** The systemd unit, as far as systemd can judge it without running it. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { SERVE_OPTIONS } from '../src/cli/serve-options.js';

const SHIPPED = fileURLToPath(new URL('../../deploy/systemd/', import.meta.url));
const UNIT = 'halo-server.service';
/** systemd's own scale: 0 is safe, 10 is not; a network service without hardening has 9.6. */
const EXPOSURE_MAX = 2;

function shipped(name: string): string {
  return readFileSync(join(SHIPPED, name), 'utf8');
}

/** What a unit says of a key, in order. */
function values(text: string, key: string): string[] {
  return text
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .filter((line) => line.startsWith(`${key}=`))
    .map((line) => line.slice(key.length + 1));
}

/** The unit as it would lie in /etc/systemd/system, with this machine's Node. */
function installUnit(t: Test, dropIns: Readonly<Record<string, string>> = {}): string {
  const folder = mkdtempSync(join(tmpdir(), 'halo-systemd-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(join(SHIPPED, UNIT), join(folder, UNIT));
  mkdirSync(join(folder, `${UNIT}.d`));
  const files = [UNIT, ...Object.keys(dropIns).map((name) => `${UNIT}.d/${name}`)];
  for (const [name, text] of Object.entries(dropIns)) {
    writeFileSync(join(folder, `${UNIT}.d`, name), text);
  }
  for (const file of files) {
    const text = readFileSync(join(folder, file), 'utf8');
    writeFileSync(join(folder, file), text.replaceAll('/usr/bin/node', process.execPath));
  }
  return join(folder, UNIT);
}

function analyze(...args: string[]): { status: number | null; said: string } {
  const { status, stdout, stderr } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
  return { status, said: `${stdout}${stderr}` };
}

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;
if (!hasSystemd) t.comment('systemd is not installed: the unit was only read');

t.test('systemd takes the unit, with and without PostgreSQL', async (t) => {
  if (!hasSystemd) return;
  const dropIn = { 'postgres.conf': shipped('postgres.conf') };
  for (const unit of [installUnit(t), installUnit(t, dropIn)]) {
    t.same(analyze('verify', unit), { status: 0, said: '' });
    const judged = analyze('security', '--offline=true', unit).said;
    const exposure = Number(/exposure level for \S+: ([\d.]+)/.exec(judged)?.[1]);
    t.ok(exposure <= EXPOSURE_MAX, `exposure ${exposure}`);
  }
  const wrong = installUnit(t, { 'postgres.conf': '[Service]\nLoadCredentials=a:/b\n' });
  t.match(analyze('verify', wrong).said, /Unknown key/, 'and would say what it does not take');
});

t.test(
  'the service has time for its shutdown, and is not restarted for what needs a person',
  async (t) => {
    const unit = shipped(UNIT);
    for (const command of [
      ...values(unit, 'ExecStart'),
      ...values(shipped('postgres.conf'), 'ExecStart'),
    ]) {
      if (command === '') continue;
      const graceSeconds = Number(/--shutdown-grace (\d+)s/.exec(command)?.[1]);
      t.ok(Number.parseInt(values(unit, 'TimeoutStopSec')[0] ?? '', 10) > graceSeconds);
      const names: string[] = SERVE_OPTIONS.map(({ name }) => name);
      const given = [...command.matchAll(/--([a-z-]+)/g)].map(([, name = '']) => name);
      t.ok(given.length >= 2 && given.every((name) => names.includes(name)), given.join(', '));
    }
    t.same(values(unit, 'Restart'), ['on-failure']);
    t.same(values(unit, 'RestartPreventExitStatus'), ['2 3']);
  },
);

t.test(
  'every credential that is loaded is used, and every one that is used is loaded',
  async (t) => {
    const dropIn = shipped('postgres.conf');
    const loaded = values(dropIn, 'LoadCredential').map((text) => text.split(':')[0]);
    const [, command = ''] = values(dropIn, 'ExecStart');
    const used = [...command.matchAll(/\$\{CREDENTIALS_DIRECTORY\}\/(\S+)/g)].map(
      ([, name]) => name,
    );
    t.same(loaded.sort(), used.sort());
    t.equal(used.length, 3);
  },
);
