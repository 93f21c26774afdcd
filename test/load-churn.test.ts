import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { ChurnFleet, faultOf } from '../load/churn-fleet.js';
import type { ChurnJob, ChurnResult } from '../load/churn-process.js';
import type { LoadDevice } from '../load/devices.js';
import { runJob } from '../load/job-process.js';

const devices: LoadDevice[] = Array.from({ length: 20 }, (_, index) => ({
  id: `dev_${index}`,
  user: `user-${index}`,
  credential: `credential-${index}`,
}));

const allowed = ({ id, user }: LoadDevice): { status: number; body: string } => ({
  status: 200,
  body: JSON.stringify({ device: { id, user } }),
});
const refused = { status: 403, body: '{"code":"device_revoked"}' };

t.test('what was answered once holds for all that is sent later', async (t) => {
  const fleet = new ChurnFleet(devices.slice(0, 2), 2);
  const known = fleet.pick(0)!;
  const yes = allowed(known.device);
  t.equal(faultOf(known, known.standing, yes), '');
  t.not(faultOf(known, known.standing, refused), '', 'nobody is refused who was not revoked');
  t.not(faultOf(known, 'live', allowed(devices[5]!)), '', 'nor taken for somebody else');
  fleet.revoking(known);
  for (const sentAs of ['live', 'being-revoked'] as const) {
    t.equal(faultOf(known, sentAs, yes), '', 'while it is revoked it may still be let in');
    t.equal(faultOf(known, sentAs, refused), '', 'or not any more');
    t.not(faultOf(known, sentAs, { status: 401, body: '{"code":"device_unknown"}' }), '');
  }
  fleet.wasRevoked(known);
  t.equal(faultOf(known, 'being-revoked', yes), '', 'sent before the answer');
  t.not(faultOf(known, 'revoked', yes), '', 'sent after it');
  t.equal(faultOf(known, 'revoked', refused), '');
});

t.test('every replica is asked for what another one has answered', async (t) => {
  const fleet = new ChurnFleet(devices.slice(0, 2), 2);
  t.equal(fleet.nextOwed(), undefined);
  const known = fleet.pick(0.99)!;
  fleet.revoking(known);
  t.same(fleet.liveDevices, [devices[0]], 'nobody else is revoked');
  fleet.wasRevoked(known);
  t.match(fleet.nextOwed(), { known, replica: 0 });
  t.match(fleet.nextOwed(), { known, replica: 1 });
  fleet.wasEnrolled(devices[7]!, 1);
  t.match(fleet.nextOwed(), { known: { device: devices[7] }, replica: 0 });
  t.equal(fleet.nextOwed(), undefined);
  t.same(fleet.liveDevices, [devices[0], devices[7]]);
  t.same(fleet.revoked, [known.device]);
});

/** A server of devices in a few lines; `fault` may answer instead of it. */
class ToyServer {
  private readonly byCredential = new Map(devices.map((device) => [device.credential, device]));
  private readonly revoked = new Set<string>();
  private minted = 0;
  private readonly users = new Map<string, string>();

  constructor(private readonly forgets: 'nothing' | 'revocations' | 'enrolments') {}

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const { url = '' } = request;
    const body = text === '' ? {} : JSON.parse(text);
    const say = (status: number, value: unknown): void => {
      response.statusCode = status;
      response.end(JSON.stringify(value));
    };
    if (url === '/api/v1/enrollment-tokens') {
      this.minted += 1;
      this.users.set(`token-${this.minted}`, body.user);
      say(201, { token: `token-${this.minted}` });
    } else if (url === '/api/v1/enroll') say(201, this.enrol(body.token));
    else if (url.endsWith('/revoke')) {
      if (this.forgets !== 'revocations') this.revoked.add(url.split('/')[4]!);
      say(200, {});
    } else this.authenticate(request, say);
  }

  private enrol(token: string): object {
    const user = this.users.get(token)!;
    const device = { id: `dev_of_${token}`, user };
    const credential = `credential-of-${token}`;
    if (this.forgets !== 'enrolments') this.byCredential.set(credential, { ...device, credential });
    return { device, credential };
  }

  private authenticate(
    { headers }: IncomingMessage,
    say: (status: number, value: unknown) => void,
  ): void {
    const device = this.byCredential.get((headers.authorization ?? '').slice('Bearer '.length));
    if (device === undefined) say(401, { code: 'device_unknown' });
    else if (this.revoked.has(device.id)) say(403, { code: 'device_revoked' });
    else say(200, { device: { id: device.id, user: device.user } });
  }
}

async function churn(t: Test, server: ToyServer): Promise<ChurnResult> {
  const listening = createServer((request, response) => void server.answer(request, response));
  listening.listen(0, '127.0.0.1');
  await new Promise((resolve) => listening.once('listening', resolve));
  t.teardown(() => listening.closeAllConnections());
  t.teardown(() => listening.close());
  const url = `http://127.0.0.1:${(listening.address() as AddressInfo).port}`;
  const seed = Date.now();
  t.comment(`seed ${seed}`);
  const timing = { ratePerSecond: 1_000, warmUpMs: 100, durationMs: 1_500 };
  const job = { urls: [url, url], adminToken: 'admin', devices, seed, ...timing };
  return runJob<ChurnJob, ChurnResult>({ script: './churn-process.js', job, withinMs: 60_000 });
}

t.test('a server that is right about everybody passes', async (t) => {
  const result = await churn(t, new ToyServer('nothing'));
  t.match(result, { wrong: 0, firstWrong: '', unavailable: 0, broken: 0 });
  t.ok(result.sent >= 1_600, `${result.sent} sent`);
  for (const kind of [
    ...['authenticate', 'authenticate, just revoked', 'authenticate, just enrolled'],
    ...['mint a token', 'enrol', 'revoke'],
  ]) {
    t.ok(result.kinds[kind], kind);
  }
  t.ok(result.revoked.length > 0 && result.live.length > 0);
});

t.test('a server that forgets revocations, or enrolments, is found out', async (t) => {
  t.match(await churn(t, new ToyServer('revocations')), {
    firstWrong: /just revoked: A revoked device got 200/,
  });
  t.match(await churn(t, new ToyServer('enrolments')), {
    firstWrong: /A device that is let in got 401/,
  });
});
