/** The file behind `--audit-sinks-file`: what it may say, and how it is told what is wrong. */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { SinkSettings } from '../src/actors/audit-export/sink-settings.js';
import { readAuditSinks } from '../src/cli/audit-sinks-file.js';
import { type LogFields, silentLog } from '../src/runtime/log.js';

const SECRET = 'a-secret-of-a-webhook-with-41-characters';
const OLD_SECRET = 'an-older-secret-of-a-webhook-so-long-too';

interface Read {
  readonly sinks: readonly SinkSettings[];
  readonly warnings: readonly LogFields[];
  readonly folder: string;
}

/** Reads a file with that text, beside secrets of mode 0600 unless another is asked for. */
async function read(t: Test, text: string, secretMode = 0o600): Promise<Read> {
  const folder = t.testdir({ 'sinks.yaml': text });
  mkdirSync(join(folder, 'secrets'));
  for (const [name, secret] of Object.entries({
    new: `${SECRET}\n`,
    old: OLD_SECRET,
    short: 'x',
  })) {
    writeFileSync(join(folder, 'secrets', name), secret);
    chmodSync(join(folder, 'secrets', name), secretMode);
  }
  const warnings: LogFields[] = [];
  const log = { ...silentLog, warn: (fields: LogFields) => void warnings.push(fields) };
  return { sinks: await readAuditSinks(join(folder, 'sinks.yaml'), log), warnings, folder };
}

const WEBHOOK = `
  - name: siem
    type: webhook
    url: https://siem.example.com/halos
    secretFile: secrets/new
`;

t.test('sinks are read with their secrets, relative to the file', async (t) => {
  const text = `# where auditors look
sinks:
  - name: archive
    type: file
    path: audit.jsonl
    batchMax: 7${WEBHOOK}    previousSecretFile: secrets/old
`;
  const { sinks, warnings, folder } = await read(t, text);
  t.strictSame(sinks, [
    { type: 'file', name: 'archive', batchMax: 7, path: join(folder, 'audit.jsonl') },
    {
      type: 'webhook',
      name: 'siem',
      batchMax: 200,
      url: 'https://siem.example.com/halos',
      secret: SECRET,
      previousSecret: OLD_SECRET,
      allowPrivate: false,
    },
  ]);
  t.strictSame(warnings, []);
});

t.test('JSON does as well, and no sinks at all', async (t) => {
  const json = JSON.stringify({ sinks: [{ name: 'a', type: 'file', path: '/var/log/a.jsonl' }] });
  const { sinks } = await read(t, json);
  t.match(sinks, [{ name: 'a', type: 'file', path: '/var/log/a.jsonl' }]);
  t.strictSame((await read(t, 'sinks: []')).sinks, []);
});

t.test('a secret that others can read is warned of, not refused', async (t) => {
  const { warnings, sinks } = await read(t, `sinks:${WEBHOOK}`, 0o644);
  t.equal(sinks.length, 1, 'orchestrators mount them so');
  t.match(warnings, [{ file: /secrets\/new$/ }]);
});

t.test('an address without TLS is taken only where private ones are', async (t) => {
  const http = WEBHOOK.replace('https:', 'http:');
  const { sinks } = await read(t, `sinks:${http}    allowPrivate: true\n`);
  t.match(sinks, [{ url: 'http://siem.example.com/halos', allowPrivate: true }]);
  await t.rejects(read(t, `sinks:${http}`), { message: /line 4: url must be an https address/ });
});

const sink = (...lines: readonly string[]): string => `sinks:\n  - ${lines.join('\n    ')}\n`;
const manySinks = (count: number): string => {
  const one = (index: number): string => `  - { name: a${index}, type: file, path: /a }\n`;
  return `sinks:\n${Array.from({ length: count }, (_, index) => one(index)).join('')}`;
};
const FILE = ['name: a', 'type: file', 'path: /a'];
const HOOK = ['name: a', 'type: webhook', 'url: https://a.example', 'secretFile: secrets/new'];
const WRONG: Readonly<Record<string, readonly [text: string, told: RegExp]>> = {
  'is no YAML': ['sinks:\n  - {', /line \d: .*not YAML|line \d is not YAML/],
  'says a key twice': ['sinks: []\nsinks: []\n', /line 2 is not YAML/],
  'is empty': ['', /line 1: it must be a map with a list of sinks/],
  'is a list': ['- a\n', /line 1: it must be a map with a list of sinks/],
  'has no list': ['sinks: 7\n', /line 1: sinks must be a list/],
  'lacks the sinks': ['{}\n', /line 1: sinks is missing/],
  'has an unknown field': ['sinks: []\nother: 1\n', /line 2: there is no such field here/],
  'has a sink that is none': ['sinks:\n  - 7\n', /line 2: a sink must be an object/],
  'has a sink without a name': [sink('type: file', 'path: /a'), /line 2: name is missing/],
  'has a name with a slash': [
    sink('name: a/b', 'type: file', 'path: /a'),
    /line 2: name must be 1 to 63 lower-case letters, digits and hyphens/,
  ],
  'has another type': [sink('name: a', 'type: syslog'), /line 3: type must be file or webhook/],
  'has no path': [sink('name: a', 'type: file'), /line 2: path is missing/],
  'has a misspelt field': [sink(...FILE, 'batchmax: 3'), /line 5: there is no such field here/],
  'has a batch of none': [
    sink(...FILE, 'batchMax: 0'),
    /line 5: batchMax must be an integer from 1 to 1000/,
  ],
  'has an address for a file': [sink(...FILE, 'url: https://a'), /line 5: there is no such field/],
  'has no address': [sink('name: a', 'type: webhook'), /line 2: url is missing/],
  'has a flag that is text': [
    sink(...HOOK, 'allowPrivate: "yes"'),
    /line 6: allowPrivate must be true or false/,
  ],
  'has a password in an address': [
    sink(...HOOK.slice(0, 2), 'url: https://u:hunter2@a.example', HOOK[3] ?? ''),
    /line 4: url must be an https address without user, password and fragment/,
  ],
  'has an address that is none': [
    sink(...HOOK.slice(0, 2), 'url: a.example', HOOK[3] ?? ''),
    /line 4: url must be an https address/,
  ],
  'has a name twice': [
    `${sink(...FILE)}  - name: a\n    type: file\n    path: /b\n`,
    /line 5: another sink has that name/,
  ],
  'has too many sinks': [manySinks(9), /it has more than 8 sinks/],
  'has too many files': [manySinks(3), /it has more than 2 files/],
  'has an alias': ['a: &a 1\nsinks: *a\n', /line 2: write it out, without an alias/],
  'has no secret': [
    sink(...HOOK.slice(0, 3), 'secretFile: secrets/none'),
    /the secret of sink 1 is not there: .*secrets\/none/,
  ],
  'has a short secret': [
    sink(...HOOK.slice(0, 3), 'secretFile: secrets/short'),
    /the secret of sink 1 must be 32 or more visible ASCII characters/,
  ],
  'has a folder for a secret': [
    sink(...HOOK.slice(0, 3), 'secretFile: secrets'),
    /the secret of sink 1 cannot be read/,
  ],
};

for (const [what, [text, told]] of Object.entries(WRONG)) {
  t.test(`a file that ${what} is refused`, async (t) => {
    const error = await read(t, text).then(
      () => undefined,
      (cause: unknown) => cause as Error & { code: string },
    );
    t.match(error, { code: 'audit_sinks_invalid', message: told });
    t.match(error?.message, /sinks\.yaml cannot be used: /);
    t.notMatch(error?.message, /hunter2/, 'no value is repeated');
  });
}

t.test('a file that is not there is refused', async (t) => {
  const missing = join(t.testdir(), 'sinks.yaml');
  const expected = { code: 'audit_sinks_invalid', message: /there is no such file/ };
  await t.rejects(readAuditSinks(missing, silentLog), expected);
});
