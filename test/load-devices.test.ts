import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { checkedAnswers, checkRefusals, type Refusal } from '../load/devices.js';

const device = { id: 'dev_1', user: 'ann', credential: 'credential-1' };

interface Answer {
  status: number;
  device: string;
  user: string;
  body: unknown;
}

async function serve(t: Test, answer: Answer): Promise<string> {
  const server = createServer((_request, response: ServerResponse) => {
    response.statusCode = answer.status;
    response.setHeader('x-halo-device', answer.device);
    response.setHeader('x-halo-user', answer.user);
    response.end(typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body));
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  t.teardown(() => server.closeAllConnections());
  t.teardown(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const right: Answer = {
  status: 200,
  device: 'dev_1',
  user: 'ann',
  body: { device: { id: 'dev_1', user: 'ann' } },
};

t.test('an answer is right only in status, both headers and the whole body', async (t) => {
  const url = await serve(t, right);
  t.equal((await checkedAnswers(url, [device]))[0]?.body, JSON.stringify(right.body));
  const wrong: Partial<Answer>[] = [
    { status: 201 },
    { device: 'dev_2' },
    { user: 'bob' },
    { body: { device: { id: 'dev_2', user: 'ann' } } },
    { body: { device: { id: 'dev_1', user: 'ann' }, more: 1 } },
    { body: 'no JSON' },
  ];
  for (const fault of wrong) {
    const faulty = await serve(t, { ...right, ...fault });
    await t.rejects(checkedAnswers(faulty, [device]), /Expected/, JSON.stringify(fault));
  }
});

t.test('a refusal is right only in status and code', async (t) => {
  const refusal: Refusal = {
    what: 'unknown',
    credential: 'x',
    status: 401,
    code: 'device_unknown',
    isGuess: true,
  };
  const answer = { ...right, status: 401, body: { code: 'device_unknown' } };
  await checkRefusals(await serve(t, answer), [refusal]);
  for (const fault of [{ status: 403 }, { body: { code: 'device_revoked' } }, { body: '' }]) {
    const faulty = await serve(t, { ...answer, ...fault });
    await t.rejects(checkRefusals(faulty, [refusal]), /must get 401 device_unknown/);
  }
});
