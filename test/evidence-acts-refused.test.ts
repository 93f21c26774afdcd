/** What is not done leaves no evidence, and what cannot be recorded is not done. */
import t, { type Test } from 'tap';
import type { EvidenceRecorder } from '../src/actors/evidence.js';
import { digestOf, mintSecret } from '../src/actors/secrets.js';
import { CodedError } from '../src/runtime/failure.js';
import { systemRandom } from '../src/runtime/random.js';
import { StoreError } from '../src/storage/store-error.js';
import { enrolled, keyOf, mint } from './fixtures/act-cases.js';
import { codeOf } from './fixtures/device-replica.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { startCluster } from './fixtures/postgres-database.js';
import {
  openOnFiles,
  openOnModel,
  openOnPostgres,
  type RecordingOptions,
  type RecordingReplica,
} from './fixtures/recording-replica.js';

t.setTimeout(120_000);
keepAlive(t);
const cluster = await startCluster();
t.teardown(() => cluster.stop());

type Open = (test: Test, options?: RecordingOptions) => Promise<RecordingReplica>;
const BACKENDS: ReadonlyArray<readonly [name: string, open: Open]> = [
  ['the model', openOnModel],
  ['files', openOnFiles],
  ['PostgreSQL', async (test, options) => openOnPostgres(test, await cluster.database(), options)],
];

const SHAPE = { name: 'laptop', platform: 'linux' };
const HOUR_MS = 3_600_000;

/** What each call is answered, and how many events it leaves. */
async function leaves(
  replica: RecordingReplica,
  call: () => Promise<unknown>,
): Promise<[code: string, events: number]> {
  const before = (await replica.recorded()).length;
  const code = await codeOf(call());
  return [code, (await replica.recorded()).length - before];
}

async function checkRefused(t: Test, replica: RecordingReplica): Promise<void> {
  const { devices, gateways, kills } = replica;
  const { id, credential } = await enrolled(replica);
  const { token } = await mint(replica);
  await devices.voidTokens({ user: 'ann', by: 'root' });
  const rotate = { id, overlapSeconds: 0 };
  const asDevice = { kind: 'device' as const, credentialDigest: digestOf(credential) };
  const nobody = { kind: 'device' as const, credentialDigest: digestOf('guess') };
  const killed = { kind: 'agent', id: 'a', reason: 'no', by: 'root', expiresAtMs: 1 };
  const refusals: ReadonlyArray<readonly [code: string, call: () => Promise<unknown>]> = [
    [
      'enrollment_token_invalid',
      () => devices.enroll({ tokenDigest: digestOf('guess'), ...SHAPE }),
    ],
    ['enrollment_token_invalid', () => devices.enroll({ tokenDigest: digestOf(token), ...SHAPE })],
    ['device_not_found', () => devices.revoke({ id: 'dev_0', reason: 'lost', by: 'root' })],
    [
      'device_not_found',
      () => devices.rotate({ ...rotate, id: 'dev_0', caller: { kind: 'admin', name: 'root' } }),
    ],
    ['device_unknown', () => devices.rotate({ ...rotate, caller: nobody })],
    ['not_own_device', () => devices.rotate({ ...rotate, id: 'dev_0', caller: asDevice })],
    ['kill_already_expired', () => kills.kill(killed)],
    ['gateway_not_found', () => gateways.rotate({ id: 'gw_0', overlapSeconds: 0, by: 'root' })],
    ['gateway_not_found', () => gateways.remove({ id: 'gw_0', by: 'root' })],
  ];
  for (const [code, call] of refusals) t.strictSame(await leaves(replica, call), [code, 0]);
}

async function checkUnchanged(t: Test, replica: RecordingReplica): Promise<void> {
  const { devices, gateways, kills } = replica;
  const { id, credential } = await enrolled(replica);
  const revocation = { id, reason: 'lost', by: 'root', idempotency: keyOf('revoke') };
  const voiding = { user: 'ann', by: 'root', idempotency: keyOf('void') };
  const kill = { kind: 'agent', id: 'a', reason: 'no', by: 'root', idempotency: keyOf('kill') };
  const lift = { kind: 'agent', id: 'b', by: 'root', idempotency: keyOf('lift') };
  const gateway = await gateways.create({ name: 'edge', by: 'root' });
  const removal = { id: gateway.id, by: 'root', idempotency: keyOf('remove') };
  const firsts = [
    () => devices.voidTokens(voiding),
    () => devices.revoke(revocation),
    () => kills.kill(kill),
    () => gateways.remove(removal),
  ];
  for (const call of firsts) t.strictSame(await leaves(replica, call), ['resolved', 1]);
  const again = [
    ...firsts,
    () => devices.revoke({ ...revocation, reason: 'again', idempotency: keyOf('revoke 2') }),
    () => kills.kill({ ...kill, reason: 'again', idempotency: keyOf('kill 2') }),
    () => kills.lift(lift),
    () => kills.lift(lift),
    () => gateways.remove({ ...removal, idempotency: keyOf('remove 2') }),
  ];
  for (const call of again) t.strictSame(await leaves(replica, call), ['resolved', 0]);
  t.strictSame(await leaves(replica, () => replica.authenticate(credential)), ['resolved', 0]);
}

async function checkFirstUse(t: Test, replica: RecordingReplica): Promise<void> {
  const { token } = await mint(replica);
  const input = { tokenDigest: digestOf(token), ...SHAPE, deviceKey: 'a-public-key' };
  const { device, credential } = await replica.devices.enroll(input);
  const before = (await replica.recorded()).length;
  t.equal(await replica.authenticate(credential), `${device.id}ann`);
  t.equal((await replica.recorded()).length, before);
}

/** A recorder that refuses what `refuses` says, as the real one does for its reasons. */
function refusing(refuses: (text: string) => Error | undefined): RecordingOptions {
  return {
    recorder: (own): EvidenceRecorder => ({
      ...own,
      event: (act) => {
        const error = refuses(JSON.stringify(act));
        if (error) throw error;
        return own.event(act);
      },
    }),
  };
}

async function checkTooLarge(t: Test, replica: RecordingReplica): Promise<void> {
  const { kills } = replica;
  const kill = (id: string, reason: string): Promise<string> =>
    codeOf(kills.kill({ kind: 'agent', id, reason, by: 'root' }));
  // In one batch, since they wait together.
  const codes = await Promise.all([
    kill('a', 'no'),
    kill('b', 'x'.repeat(262_144)),
    kill('c', 'no'),
  ]);
  t.strictSame(codes, ['resolved', 'evidence_too_large', 'resolved']);
  const { entries, version } = await kills.list();
  t.strictSame(entries.map(({ id }) => id).sort(), ['a', 'c']);
  t.equal(version, 2);
  const events = await replica.recorded();
  t.strictSame(
    events.map(({ data }) => data['version']),
    [1, 2],
  );
}

async function checkSecrets(t: Test, replica: RecordingReplica): Promise<void> {
  const { devices, gateways, kills } = replica;
  const secret = mintSecret('admin', systemRandom);
  const text = `it had ${secret} in it`;
  const { token } = await mint(replica);
  const { device } = await devices.enroll({
    tokenDigest: digestOf(token),
    name: text,
    platform: text,
    idempotency: keyOf('enroll', 'enrollment:x'),
  });
  const { id } = device;
  await devices.revoke({ id, reason: text, by: 'root', idempotency: keyOf('revoke') });
  const kill = { kind: 'agent', id: 'a', reason: text, by: 'root', idempotency: keyOf('kill') };
  await kills.kill(kill);
  const expiresAtMs = (await replica.nowMs()) + HOUR_MS;
  await kills.kill({ ...kill, expiresAtMs, idempotency: keyOf('kill 2') });
  await kills.lift({ kind: 'agent', id: 'a', by: 'root' });
  const gateway = await gateways.create({ name: text, by: 'root', idempotency: keyOf('create') });
  await gateways.rotate({ id: gateway.id, overlapSeconds: 0, by: 'root' });
  await gateways.remove({ id: gateway.id, by: 'root' });
  const everything = await replica.everything();
  t.notMatch(everything, secret, 'it is nowhere');
  t.match(everything, 'it had [hmac-sha256:', 'what stands in its place is');
  t.notMatch(everything, token, 'nor is a token that was handed out');
  const masked = (await replica.recorded()).flatMap((event) => event.masked);
  for (const place of ['/data/name', '/data/platform', '/data/reason']) {
    t.ok(masked.includes(place), `${place} is said to be masked`);
  }
  t.match((await devices.get(id)).revokedReason, /^it had \[hmac-sha256:/);
}

for (const [name, open] of BACKENDS) {
  t.test(`what is refused leaves no evidence: ${name}`, async (t) => {
    await checkRefused(t, await open(t));
  });
  t.test(`what changes nothing leaves no evidence, nor does a replay: ${name}`, async (t) => {
    await checkUnchanged(t, await open(t));
  });
  t.test(`the first authentication leaves none, as no other does: ${name}`, async (t) => {
    await checkFirstUse(t, await open(t));
  });
  t.test(`an act whose evidence would be too large fails alone: ${name}`, async (t) => {
    await checkTooLarge(t, await open(t));
  });
  t.test(`a secret in a free text is stored nowhere: ${name}`, async (t) => {
    await checkSecrets(t, await open(t));
  });
  t.test(`what cannot be recorded is not done: ${name}`, async (t) => {
    const unready = new StoreError('store_unavailable', 'Not now.');
    let isReady = true;
    const replica = await open(
      t,
      refusing(() => (isReady ? undefined : unready)),
    );
    const { id, credential } = await enrolled(replica);
    isReady = false;
    const revoke = (): Promise<unknown> =>
      replica.devices.revoke({ id, reason: 'lost', by: 'root' });
    t.strictSame(await leaves(replica, revoke), ['store_unavailable', 0]);
    t.equal(await replica.authenticate(credential), `${id}ann`);
    isReady = true;
    t.strictSame(await leaves(replica, revoke), ['resolved', 1]);
  });
}

t.test('of kills that end together all are lifted with their evidence, or none is', async (t) => {
  let refused = 1;
  const isLast = (text: string): boolean => /kill-list\.expired.*"id":"c"/.test(text);
  const replica = await openOnModel(
    t,
    refusing((text) => {
      if (!isLast(text) || refused === 0) return undefined;
      refused -= 1;
      return new CodedError('evidence_invalid', 'Not that one.');
    }),
  );
  const expiresAtMs = (await replica.nowMs()) + 1_000;
  for (const id of ['a', 'b', 'c']) {
    await replica.kills.kill({ kind: 'agent', id, reason: 'no', by: 'root', expiresAtMs });
  }
  const versions: number[] = [];
  await replica.pass(1_000);
  while (versions.at(-1) !== 6) versions.push((await replica.kills.version()).version);
  t.ok(
    versions.every((version) => version === 3 || version === 6),
    'never some of them',
  );
  const ended = (await replica.recorded()).filter(({ kind }) => kind === 'kill-list.expired');
  t.strictSame(
    ended.map(({ data }) => data['version']),
    [4, 5, 6],
  );
  t.equal(refused, 0, 'and the first time one was refused');
});

for (const [when, kept] of [
  ['before', 0],
  ['after', 1],
] as const) {
  t.test(`an outcome that is unknown: lost ${when} the commit, ${kept} events`, async (t) => {
    let isLost = false;
    const lose = (operation: string): void => {
      if (!isLost || operation !== 'commit') return;
      isLost = false;
      const code = when === 'before' ? 'store_unavailable' : 'outcome_unknown';
      throw new StoreError(code, 'The connection broke.');
    };
    const replica = await openOnModel(t, { hooks: { [when]: lose } });
    const { id, credential } = await enrolled(replica);
    isLost = true;
    const [code, events] = await leaves(replica, () =>
      replica.devices.revoke({ id, reason: 'lost', by: 'root' }),
    );
    t.equal(code, when === 'before' ? 'store_unavailable' : 'outcome_unknown');
    t.equal(events, kept, 'exactly as many as there are changes');
    const isIn = (await replica.authenticate(credential)) === `${id}ann`;
    t.equal(isIn, kept === 0);
  });
}

t.test('on PostgreSQL, what the database refuses takes its evidence back with it', async (t) => {
  const database = await cluster.database();
  const replica = await openOnPostgres(t, database);
  const { id } = await enrolled(replica);
  await database.sql(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'no revocation'; END $$`);
  await database.sql(`
    CREATE TRIGGER refuse BEFORE INSERT ON halo_journal FOR EACH ROW
      WHEN (NEW.key LIKE 'revoked/%') EXECUTE FUNCTION refuse()`);
  const revoke = (): Promise<unknown> => replica.devices.revoke({ id, reason: 'lost', by: 'root' });
  const [code, events] = await leaves(replica, revoke);
  t.not(code, 'resolved');
  t.equal(events, 0);
  await database.sql('DROP TRIGGER refuse ON halo_journal');
  t.strictSame(await leaves(replica, revoke), ['resolved', 1]);
});
