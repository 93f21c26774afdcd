/** The sinks themselves: what they send and write, and what they refuse. */
import { createHmac } from 'node:crypto';
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createSecureContext, type SecureContext } from 'node:tls';
import t, { type Test } from 'tap';
import type { Sink } from '../src/actors/audit-export/sink.js';
import type { WebhookSinkSettings } from '../src/actors/audit-export/sink-settings.js';
import { openSink } from '../src/actors/audit-export/sinks.js';
import { HostLookup, isPublic, type ResolveHost } from '../src/effects/host-lookup.js';
import { systemClock } from '../src/runtime/clock.js';
import type { CodedError } from '../src/runtime/failure.js';
import type { ChainedRecord } from '../src/storage/evidence-store.js';
import { selfSigned } from './fixtures/certificate.js';
import { ChainBuilder } from './fixtures/evidence-chains.js';
import { eventually } from './fixtures/halo-server.js';
import { WebhookReceiver } from './fixtures/webhook-receiver.js';

const EPOCH = '0123456789abcdef';
const chain: readonly ChainedRecord[] = new ChainBuilder().addSome(30).records;
const open = new AbortController().signal;

function batch(from: number, to: number): Parameters<Sink['deliver']>[0] {
  return { records: chain.slice(from, to + 1), epoch: EPOCH };
}

function fileSink(t: Test, path: string): Sink {
  const environment = { clock: systemClock, hosts: new HostLookup() };
  const sink = openSink({ type: 'file', name: 'archive', batchMax: 10, path }, environment);
  t.teardown(() => sink.close());
  return sink;
}

function webhook(url: string, changes: Partial<WebhookSinkSettings> = {}, resolve?: ResolveHost) {
  const environment = { clock: systemClock, hosts: new HostLookup(resolve) };
  const settings: WebhookSinkSettings = {
    type: 'webhook',
    name: 'siem',
    batchMax: 10,
    url,
    secret: 'new-secret',
    previousSecret: null,
    allowPrivate: true,
    ...changes,
  };
  return openSink(settings, environment);
}

async function receiver(t: Test): Promise<WebhookReceiver> {
  const started = await WebhookReceiver.start();
  t.teardown(() => started.close());
  return started;
}

const text = (from: number, to: number): string =>
  chain
    .slice(from, to + 1)
    .map((record) => `${record.text}\n`)
    .join('');

t.test(
  'a file gets each record once, also when a batch is repeated by another process',
  async (t) => {
    const path = join(t.testdir(), 'audit.jsonl');
    const first = fileSink(t, path);
    await first.deliver(batch(0, 9), open);
    await first.deliver(batch(0, 9), open);
    await first.deliver(batch(10, 14), open);
    t.equal(readFileSync(path, 'utf8'), text(0, 14));
    t.equal(statSync(path).mode & 0o777, 0o600);
    const second = fileSink(t, path);
    await second.deliver(batch(5, 19), open);
    t.equal(readFileSync(path, 'utf8'), text(0, 19), 'what is there is left out');
  },
);

t.test('a torn line is cut off and written whole, wherever it was torn', async (t) => {
  const folder = t.testdir();
  const begin = Buffer.byteLength(text(0, 9));
  const end = Buffer.byteLength(text(0, 10));
  for (let size = begin; size <= end; size += 37) {
    const path = join(folder, `audit-${size}.jsonl`);
    await fileSink(t, path).deliver(batch(0, 10), open);
    truncateSync(path, size);
    await fileSink(t, path).deliver(batch(5, 14), open);
    t.equal(readFileSync(path, 'utf8'), text(0, 14), `${size - begin} bytes of the line`);
  }
});

t.test('what another process left in the file between two terms is mended too', async (t) => {
  const path = join(t.testdir(), 'audit.jsonl');
  const sink = fileSink(t, path);
  await sink.deliver(batch(0, 4), open);
  await sink.close();
  await sink.close();
  appendFileSync(path, text(5, 6).slice(0, -10));
  await sink.deliver(batch(5, 9), open);
  t.equal(readFileSync(path, 'utf8'), text(0, 9));
});

t.test('another history in the same file is not taken for a repeat', async (t) => {
  const path = join(t.testdir(), 'audit.jsonl');
  await fileSink(t, path).deliver(batch(0, 9), open);
  const other = new ChainBuilder().addSome(2).add('test.other', { note: 'b' }).addSome(9);
  const records = other.records.slice(3, 6);
  await fileSink(t, path).deliver({ records, epoch: EPOCH }, open);
  const lines = records.map((record) => `${record.text}\n`).join('');
  t.equal(readFileSync(path, 'utf8'), text(0, 9) + lines);
});

t.test('a file that is renamed or removed is followed by a new one', async (t) => {
  const path = join(t.testdir(), 'audit.jsonl');
  const sink = fileSink(t, path);
  await sink.deliver(batch(0, 4), open);
  renameSync(path, `${path}.1`);
  await sink.deliver(batch(5, 9), open);
  t.equal(readFileSync(`${path}.1`, 'utf8'), text(0, 4));
  t.equal(readFileSync(path, 'utf8'), text(5, 9));
});

t.test('a line that somebody else left does not hinder it', async (t) => {
  const path = join(t.testdir(), 'audit.jsonl');
  appendFileSync(path, 'no JSON\n{"seq":1}\n\n');
  await fileSink(t, path).deliver(batch(0, 4), open);
  t.equal(readFileSync(path, 'utf8'), `no JSON\n{"seq":1}\n\n${text(0, 4)}`);
});

t.test('a path that cannot be written is refused with the code of the system', async (t) => {
  const folder = t.testdir();
  mkdirSync(join(folder, 'a-folder'));
  await t.rejects(fileSink(t, join(folder, 'a-folder')).deliver(batch(0, 1), open), {
    code: 'EISDIR',
  });
  const missing = fileSink(t, join(folder, 'missing', 'audit.jsonl'));
  await t.rejects(missing.deliver(batch(0, 1), open), { code: 'ENOENT' });
  mkdirSync(join(folder, 'missing'));
  chmodSync(join(folder, 'missing'), 0o700);
  await missing.deliver(batch(0, 1), open);
  t.equal(readFileSync(join(folder, 'missing', 'audit.jsonl'), 'utf8'), text(0, 1), 'until it can');
});

t.test(
  'a webhook is signed over the time and the body, by both secrets during a change',
  async (t) => {
    const received = await receiver(t);
    await webhook(received.url).deliver(batch(0, 2), open);
    await webhook(received.url, { previousSecret: 'old-secret' }).deliver(batch(3, 3), open);
    const [first, second] = received.taken;
    t.equal(first?.body, text(0, 2));
    t.match(first?.headers, {
      'content-type': 'application/x-ndjson',
      'x-halo-event-id': `audit-siem-${EPOCH}-0-2`,
    });
    const sign = (secret: string, call = second): string => {
      const signed = `${String(call?.headers['x-halo-timestamp'])}.${call?.body ?? ''}`;
      return `v1=${createHmac('sha256', secret).update(signed).digest('hex')}`;
    };
    t.equal(first?.headers['x-halo-signature'], sign('new-secret', first));
    const both = `${sign('new-secret')},${sign('old-secret')}`;
    t.equal(second?.headers['x-halo-signature'], both);
    const ageSeconds = Date.now() / 1_000 - Number(first?.headers['x-halo-timestamp']);
    t.ok(ageSeconds >= 0 && ageSeconds < 60, 'seconds since the epoch');
  },
);

t.test('everything but a 2xx is a failure, a redirect too, and nobody is followed', async (t) => {
  const received = await receiver(t);
  const sink = webhook(received.url);
  for (const status of [301, 307, 400, 404, 413, 500, 503]) {
    received.manner = status;
    const expected = { code: 'webhook_refused', message: `it answered with the status ${status}` };
    await t.rejects(sink.deliver(batch(0, 1), open), expected);
  }
  t.equal(received.calls.length, 7);
  for (const status of [200, 202, 204]) {
    received.manner = status;
    await sink.deliver(batch(0, 1), open);
  }
});

t.test('a receiver that says when to come back is heard', async (t) => {
  const received = await receiver(t);
  received.manner = 429;
  received.headers = { 'retry-after': '7' };
  const sink = webhook(received.url);
  const asked = (): Promise<number | undefined> =>
    sink.deliver(batch(0, 1), open).then(
      () => -1,
      (error: unknown) => (error as CodedError).retryAfterSeconds,
    );
  t.equal(await asked(), 7);
  received.headers = { 'retry-after': 'soon' };
  t.equal(await asked(), undefined);
});

t.test('a delivery that is told to stop hangs up', async (t) => {
  const received = await receiver(t);
  received.manner = 'swallow';
  const stop = new AbortController();
  const delivering = webhook(received.url).deliver(batch(0, 1), stop.signal);
  await eventually(() => received.underWay === 1, 10_000, 'it was sent');
  stop.abort();
  await t.rejects(delivering, { code: 'webhook_unreachable' });
  await eventually(() => received.underWay === 0, 10_000, 'the connection is closed');
});

t.test('nobody at the address, and no such host, are said apart', async (t) => {
  const received = await WebhookReceiver.start();
  const { url } = received;
  await received.close();
  const refused = webhook(url).deliver(batch(0, 1), open);
  await t.rejects(refused, { message: 'it cannot be reached (ECONNREFUSED)' });
  const none: ResolveHost = () => Promise.reject(new Error('no such host'));
  const unknown = webhook('https://nowhere.example/', {}, none).deliver(batch(0, 1), open);
  await t.rejects(unknown, { code: 'webhook_unreachable', message: 'its host is not found' });
});

t.test('private addresses are refused unless they are allowed', async (t) => {
  const received = await receiver(t);
  const isRefused = { code: 'webhook_address_refused' };
  const closed = { allowPrivate: false };
  await t.rejects(webhook(received.url, closed).deliver(batch(0, 1), open), isRefused);
  const local: ResolveHost = async () => [{ address: '127.0.0.1', family: 4 }];
  const named = webhook('https://inside.example/', closed, local);
  await t.rejects(named.deliver(batch(0, 1), open), isRefused);
  t.equal(received.calls.length, 0, 'nobody was called');
  const privates = ['127.0.0.1', '10.1.2.3', '172.16.0.1', '192.168.1.1', '169.254.169.254'];
  const more = ['100.64.0.1', '0.0.0.0', '224.0.0.1', '255.255.255.255', '::1', '::'];
  const six = ['fe80::1', 'fc00::1', 'ff02::1', '::ffff:10.0.0.1', '64:ff9b::a00:1', 'no address'];
  for (const address of [...privates, ...more, ...six]) t.notOk(isPublic(address), address);
  for (const address of ['192.0.1.1', '8.8.8.8', '2606:4700::1111', '::ffff:8.8.8.8']) {
    t.ok(isPublic(address), address);
  }
});

t.test('a name is looked up once, and what it leads to later is not called', async (t) => {
  const [good, bad] = [await receiver(t), await receiver(t)];
  let asked = 0;
  const rebinding: ResolveHost = async () => {
    asked += 1;
    return [{ address: asked === 1 ? '127.0.0.1' : '127.0.0.2', family: 4 }];
  };
  const url = new URL(good.url);
  url.hostname = 'rebound.example';
  await webhook(url.href, {}, rebinding).deliver(batch(0, 1), open);
  t.equal(asked, 1);
  t.equal(good.taken[0]?.headers.host, url.host, 'the host is still the name');
  t.equal(bad.calls.length, 0);
});

t.test('the certificate has to be that of the name, by somebody who is trusted', async (t) => {
  const { key, certificate: cert } = selfSigned('siem.example');
  const names: string[] = [];
  const SNICallback = (
    name: string,
    done: (error: null, context?: SecureContext) => void,
  ): void => {
    names.push(name);
    done(null, createSecureContext({ key, cert }));
  };
  const server = createServer({ key, cert, SNICallback }, (_request, response) => response.end());
  server.listen(0, '127.0.0.1');
  await eventually(() => server.listening, 5_000);
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const local: ResolveHost = async () => [{ address: '127.0.0.1', family: 4 }];
  const sink = webhook(`https://siem.example:${port}/`, {}, local);
  await t.rejects(sink.deliver(batch(0, 1), open), {
    message: 'it cannot be reached (DEPTH_ZERO_SELF_SIGNED_CERT)',
  });
  t.strictSame(names, ['siem.example'], 'the name is asked for, not the number');
});

t.test(
  'the check that the page shows receivers takes what is sent, and nothing else',
  async (t) => {
    const page = readFileSync(new URL('../../docs/audit-export.md', import.meta.url), 'utf8');
    const [, code = ''] = /```js\n([\s\S]*?)```/.exec(page) ?? [];
    const path = join(t.testdir(), 'receiver.mjs');
    writeFileSync(path, `${code}\nexport { isFromHalos };\n`);
    const { isFromHalos } = (await import(path)) as {
      isFromHalos(headers: object, body: string, secret: string): boolean;
    };
    const received = await receiver(t);
    await webhook(received.url, { previousSecret: 'old-secret' }).deliver(batch(0, 2), open);
    const { headers, body } = received.taken[0] ?? { headers: {}, body: '' };
    t.ok(isFromHalos(headers, body, 'new-secret'));
    t.ok(isFromHalos(headers, body, 'old-secret'));
    t.notOk(isFromHalos(headers, body, 'another'));
    t.notOk(isFromHalos(headers, `${body} `, 'new-secret'));
    t.notOk(isFromHalos({ ...headers, 'x-halo-timestamp': '1' }, body, 'new-secret'));
    t.notOk(isFromHalos({}, body, 'new-secret'));
  },
);
