/** What a profile masks is nowhere in an event, and nothing else is lost. */
import fc from 'fast-check';
import t from 'tap';
import { DEFAULT_MASKING } from '../src/evidence/default-masking.js';
import { encodeEvent } from '../src/evidence/event.js';
import { type MaskingProfile, prepareMasking } from '../src/evidence/masking.js';
import { refOf, TEST_MASKING, timeOf } from './fixtures/evidence-chains.js';

const seed = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
t.comment(`seed ${seed}`);

const KEY = { keyId: 'a'.repeat(32), secret: Buffer.alloc(32, 7) };
const PARTY = { type: 'gateway', id: 'gw_1' };

const masking = (rules: Partial<MaskingProfile>) =>
  prepareMasking({ name: 'test', fields: [], patterns: [], ...rules }, KEY);

const eventOf = (data: unknown, mask = TEST_MASKING): string => {
  const draft = { ref: refOf(1), kind: 'decision.made', at: timeOf(1), by: PARTY };
  return encodeEvent({ ...draft, data: data as any }, mask);
};

/** Letters that no marker and no other part of an event contains in a row. */
const secretText = fc.stringMatching(/^[G-Z]{12,24}$/);
const secretName = fc.constantFrom(
  'password',
  'db_password',
  'X-Api-Key',
  'accessToken',
  'Authorization',
  'client.secret',
);
const placeName = fc.stringMatching(/^[a-f]{1,6}$/);

t.test(
  'the value of a named field is nowhere, at whatever depth and of whatever type',
  async () => {
    fc.assert(
      fc.property(
        secretName,
        secretText,
        fc.array(placeName, { maxLength: 6 }),
        fc.constantFrom<(text: string) => unknown>(
          (text) => text,
          (text) => [text],
          (text) => ({ inner: { deep: text } }),
          (text) => ({ [text]: 1 }),
        ),
        (name, secret, path, shape) => {
          const leaf: unknown = { [name]: shape(secret), kept: 'kept' };
          const data = path.reduce((value: unknown, part) => ({ list: [{ [part]: value }] }), leaf);
          const text = eventOf(data);
          return !text.includes(secret) && text.includes('"kept":"kept"');
        },
      ),
      { seed, numRuns: 500 },
    );
  },
);

t.test('what a pattern matches is nowhere, in values, in names, in who did it', async (t) => {
  const credential = `halo_device_${'Ab3'.repeat(16)}x`;
  const data = { note: `key ${credential}!`, [credential]: { list: [credential] } };
  const text = encodeEvent(
    { ref: refOf(1), kind: 'x.y', at: timeOf(1), by: { type: 'user', id: credential }, data },
    TEST_MASKING,
  );
  t.notMatch(text, credential);
  const { by, data: stored, masked } = JSON.parse(text);
  t.match(stored.note, /^key \[hmac-sha256:[0-9a-f]{32}:[0-9a-f]{32}\]!$/);
  t.equal(by.id, stored.note.slice(4, -1), 'the same value can be recognised');
  const name = Object.keys(stored).find((key) => key.startsWith('['));
  t.same(masked, ['/by/id', '/data/note', `/data/${name}`, `/data/${name}/list/0`]);
});

t.test('the default profile knows the usual forms of secrets', async (t) => {
  const secrets = [
    'Bearer abcdefgh.ijkl-mnop',
    `eyJ${'a'.repeat(20)}.${'b'.repeat(20)}.${'c'.repeat(20)}`,
    `-----BEGIN PRIVATE KEY-----\n${'Q'.repeat(64)}\n-----END PRIVATE KEY-----`,
    `-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: X\nQQ\n-----END RSA PRIVATE KEY-----`,
    `AKIA${'Q'.repeat(16)}`,
    `ghp_${'q'.repeat(36)}`,
    `github_pat_${'q'.repeat(30)}`,
    `xoxb-${'1'.repeat(12)}`,
    `sk-${'q'.repeat(32)}`,
  ];
  for (const secret of secrets) {
    const text = eventOf({ note: `see ${secret} there` });
    t.notMatch(JSON.parse(text).data.note, secret, secret.slice(0, 12));
    t.match(JSON.parse(text).data.note, /^see \[hmac-sha256:[^\]]+\] there$/, secret.slice(0, 12));
  }
  const cut = `see -----BEGIN EC PRIVATE KEY-----\n${'Q'.repeat(64)} there`;
  t.match(JSON.parse(eventOf({ note: cut })).data.note, /^see \[hmac-sha256:[^\]]+\]$/);
  t.match(
    JSON.parse(eventOf({ address: 'postgres://halo:hunter2@db:5432/halo' })).data.address,
    /^postgres:\/\/\[hmac-sha256:[^\]]+\]@db:5432\/halo$/,
  );
});

t.test('what no rule names stays as it was', async (t) => {
  const data = {
    tokens: 12,
    max_tokens: 100,
    passwordless: true,
    note: 'the bearer of this, mask-free; sk-short; eyJ',
    password: null,
    nested: [{ a: [1, 'two', null, false] }],
  };
  const { data: stored, masked } = JSON.parse(eventOf(data));
  t.same(stored, data);
  t.same(masked, []);
});

t.test('a request cannot hide its action by repeating it as a password', async (t) => {
  const action = 'delete-production-database';
  const { data } = JSON.parse(eventOf({ action, context: { password: action } }));
  t.equal(data.action, action);
  t.equal(data.context.password, '[masked]');
});

t.test('fields are named by name, by ending and by path', async (t) => {
  const mask = masking({
    fields: [
      { field: 'ssn', treatment: 'remove' },
      { field: '*Pin', treatment: 'remove' },
      { field: '/context/user/e-mail', treatment: 'recognise' },
      { field: '/list/*/iban', treatment: 'remove' },
      { field: '/odd~1name', treatment: 'remove' },
    ],
  });
  const text = eventOf(
    {
      SSN: 123456789,
      card_pin: '1234',
      spinning: 'kept',
      context: { user: { email: 'ann@example.org' }, email: 'kept' },
      list: [{ iban: 'X1' }, { iban: 'X2', other: 'kept' }],
      'odd/name': 'x',
      iban: 'kept',
    },
    mask,
  );
  const { data, masked } = JSON.parse(text);
  t.equal(data.SSN, '[masked]');
  t.equal(data.card_pin, '[masked]');
  t.match(data.context.user.email, /^\[hmac-sha256:a{32}:[0-9a-f]{32}\]$/);
  t.same(data.list, [{ iban: '[masked]' }, { iban: '[masked]', other: 'kept' }]);
  t.same([data.spinning, data.context.email, data.iban], ['kept', 'kept', 'kept']);
  t.same(masked, [
    '/data/SSN',
    '/data/card_pin',
    '/data/context/user/email',
    '/data/list/0/iban',
    '/data/list/1/iban',
    '/data/odd~1name',
  ]);
});

t.test('patterns that refer back to their own groups hold beside others', async (t) => {
  const mask = masking({
    patterns: [
      { name: 'plain', pattern: '(a)b', treatment: 'remove' },
      { name: 'twice', pattern: '([x-z])\\1', treatment: 'remove' },
      { name: 'named', pattern: '(?<n>q)\\k<n>', treatment: 'remove' },
      { name: 'named alike', pattern: '(?<n>r)\\k<n>', treatment: 'remove' },
    ],
  });
  t.same(JSON.parse(eventOf({ note: 'cab, yy, yx, rr' }, mask)).data, {
    note: 'c[masked], [masked], yx, [masked]',
  });
});

t.test('two names that are masked alike both stay', async (t) => {
  const mask = masking({ patterns: [{ name: 'n', pattern: 'x\\d', treatment: 'remove' }] });
  const { data, masked } = JSON.parse(eventOf({ x1: 1, x2: 2, '[masked]': 3 }, mask));
  t.same(data, { '[masked]': 1, '[masked] 2': 2, '[masked] 3': 3 });
  t.same(masked, ['/data/[masked]', '/data/[masked] 2', '/data/[masked] 3']);
});

t.test('masking a name does not lift the rule from its value', async (t) => {
  const mask = masking({
    fields: [{ field: 'password', treatment: 'remove' }],
    patterns: [{ name: 'word', pattern: 'pass', treatment: 'remove' }],
  });
  t.same(JSON.parse(eventOf({ password: 'hunter2' }, mask)).data, { '[masked]word': '[masked]' });
});

t.test('the same value is recognised across fields, another key sees another', async (t) => {
  const profile: MaskingProfile = {
    name: 'p',
    fields: [{ field: 'email', treatment: 'recognise' }],
    patterns: [{ name: 'addresses', pattern: 'ann@\\S+', treatment: 'recognise' }],
  };
  const read = (secret: Uint8Array) =>
    JSON.parse(
      eventOf({ email: 'ann@x', note: 'ann@x' }, prepareMasking(profile, { ...KEY, secret })),
    ).data;
  const [one, two] = [read(Buffer.alloc(32, 1)), read(Buffer.alloc(32, 2))];
  t.equal(one.email, one.note);
  t.not(one.email, two.email);
});

t.test('no text that a caller can send makes evidence impossible', async (t) => {
  const { data, masked } = JSON.parse(eventOf({ note: 'a\ud800b', ['\udc00']: 1 }));
  t.same(data, { note: 'a\ufffdb', '\ufffd': 1 });
  t.same(masked, ['/data/note', '/data/\ufffd']);
  const proto = JSON.parse('{"__proto__":{"x":1},"constructor":{"y":2}}');
  t.match(eventOf(proto), '"__proto__":{"x":1}');
  t.equal(({} as any).x, undefined);
});

t.test('the default patterns take time in proportion to the text', async (t) => {
  const attacks = [
    'eyJ-'.repeat(60_000),
    'eyJaaaaaaaa.'.repeat(20_000),
    `Bearer ${' '.repeat(240_000)}`,
    'Bearer '.repeat(35_000),
    '-----BEGIN PRIVATE KEY-----'.repeat(9_000),
    `://${'a:'.repeat(120_000)}`,
    '://'.repeat(80_000),
    'sk-'.repeat(80_000),
    'halo_a_'.repeat(34_000),
    'xoxb-'.repeat(48_000),
  ];
  for (const attack of attacks) {
    const start = process.cpuUsage();
    masking({ patterns: DEFAULT_MASKING.patterns }).mask({ note: attack }, 'data');
    const ms = process.cpuUsage(start).user / 1000;
    t.ok(ms < 1000, `${attack.slice(0, 12)}: ${Math.round(ms)} ms for 240 kB`);
  }
});

t.test('a profile that cannot be used is refused with the rule', async (t) => {
  const pattern = (source: string) => [
    { name: 'p', pattern: source, treatment: 'remove' as const },
  ];
  const field = (name: string) => [{ field: name, treatment: 'remove' as const }];
  const refused: ReadonlyArray<readonly [string, Partial<MaskingProfile>]> = [
    ['not a regular expression', { patterns: pattern('(') }],
    ['matches nothing', { patterns: pattern('a*') }],
    ['too long', { patterns: pattern('a'.repeat(1025)) }],
    ['too many patterns', { patterns: Array.from({ length: 65 }, () => pattern('a')).flat() }],
    ['too many fields', { fields: Array.from({ length: 257 }, () => field('a')).flat() }],
    ['no name', { fields: field('*') }],
    ['an empty name in a path', { fields: field('/a//b') }],
  ];
  for (const [name, rules] of refused) {
    t.throws(() => masking(rules), { code: 'masking_profile_invalid' }, name);
  }
});
