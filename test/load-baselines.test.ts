import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { LoadDatabases } from '../load/databases.js';
import {
  answerHeaders,
  checkedAnswers,
  checkRefusals,
  DEVICE_AUTH_PATH,
  refusals,
} from '../load/devices.js';
import { ServerProcess } from '../load/server-process.js';
import { digestOf, mintSecret } from '../src/actors/secrets.js';
import { systemRandom } from '../src/runtime/random.js';

function scriptOf(name: string): string {
  return fileURLToPath(new URL(`../load/baselines/${name}.js`, import.meta.url));
}

const devices = ['ann', 'zo%C3%AB'].map((user, index) => ({
  id: `dev_00000000-0000-7000-8000-00000000000${index}`,
  user,
  credential: mintSecret('device', systemRandom),
}));

t.test('bare uWebSockets.js gives the constant answer, with those headers alone', async (t) => {
  const directory = t.testdir({});
  const [device] = devices;
  const { id, user } = device!;
  const headers: [string, string][] = [
    ['cache-control', 'no-store'],
    ['content-type', 'application/json'],
    ['x-halo-device', id],
    ['x-halo-user', user],
    ['x-request-id', 'a-1'],
  ];
  const answerFile = join(directory, 'answer.json');
  const body = JSON.stringify({ device: { id, user } });
  writeFileSync(answerFile, JSON.stringify({ headers, body }));
  const server = await ServerProcess.start({
    name: 'bare-uws',
    script: scriptOf('bare-uws'),
    args: ['--answer', answerFile],
    directory,
    readyWithinMs: 15_000,
  });
  t.same(await checkedAnswers(server.url, [device!]), [
    { credential: device!.credential, device: id, user, body },
  ]);
  t.same(await answerHeaders(server.url, device!), headers);
  const usage = server.usage();
  t.ok(usage.cpuMs > 0 && usage.rssBytes > 1e6, 'its cost can be seen from outside');
  await server.stop();
  t.throws(() => server.usage(), 'it is gone');
});

t.test('the look-up baseline knows each device, and answers as Halos does', async (t) => {
  const directory = t.testdir({});
  const devicesFile = join(directory, 'devices.json');
  const known = devices.map(({ id, user, credential }) => ({
    id,
    user,
    digest: digestOf(credential),
  }));
  writeFileSync(devicesFile, JSON.stringify(known));
  const server = await ServerProcess.start({
    name: 'bare-look-up',
    script: scriptOf('bare-look-up'),
    args: ['--devices', devicesFile],
    directory,
    readyWithinMs: 15_000,
  });
  t.equal((await checkedAnswers(server.url, devices)).length, devices.length);
  const [first] = devices;
  const headers = await answerHeaders(server.url, first!);
  t.same(headers.map(([name]) => name).sort(), [
    'cache-control',
    'content-type',
    'x-halo-device',
    'x-halo-user',
    'x-request-id',
  ]);
  const [one, other] = await Promise.all([0, 1].map(() => answerHeaders(server.url, first!)));
  t.not(one!.at(-1)?.[1], other!.at(-1)?.[1], 'each answer has a request id of its own');
  for (const authorization of ['', `Bearer ${mintSecret('device', systemRandom)}`]) {
    const answer = await fetch(server.url + DEVICE_AUTH_PATH, { headers: { authorization } });
    t.equal(answer.status, 401);
  }
  await server.stop();
});

t.test('Fastify asks the table for each credential, and refuses the others', async (t) => {
  const directory = t.testdir({});
  const databases = await LoadDatabases.start(directory);
  t.teardown(() => databases.stop());
  t.match(await databases.version(), /^1\d/);
  const urlFile = await databases.create('baseline');
  await databases.fillBaseline('baseline', devices);
  const server = await ServerProcess.start({
    name: 'fastify-pg',
    script: scriptOf('fastify-pg'),
    args: ['--database-url-file', urlFile],
    directory,
    readyWithinMs: 15_000,
  });
  t.equal((await checkedAnswers(server.url, devices)).length, devices.length);
  const ask = async (authorization?: string): Promise<number> => {
    const headers = authorization === undefined ? {} : { authorization };
    return (await fetch(server.url + DEVICE_AUTH_PATH, { headers })).status;
  };
  t.equal(await ask(), 401);
  t.equal(await ask(`Bearer ${mintSecret('device', systemRandom)}`), 401);
  const before = databases.cpuMs();
  // The kernel counts in steps of 10 ms, which are some hundred queries.
  for (let round = 0; round < 5_000 && databases.cpuMs() === before; round += 1) {
    await checkedAnswers(server.url, devices);
  }
  t.ok(databases.cpuMs() > before, 'what the queries cost the database is seen');
  await server.stop();
});

t.test(
  'another device’s answer, or letting in what is bad, stops a run before it measures',
  async (t) => {
    const directory = t.testdir({});
    const answerFile = join(directory, 'answer.json');
    const [one, other] = devices;
    const headers = [
      ['x-halo-device', one!.id],
      ['x-halo-user', one!.user],
    ];
    const body = JSON.stringify({ device: { id: one!.id, user: one!.user } });
    writeFileSync(answerFile, JSON.stringify({ headers, body }));
    const server = await ServerProcess.start({
      name: 'bare-uws',
      script: scriptOf('bare-uws'),
      args: ['--answer', answerFile],
      directory,
      readyWithinMs: 15_000,
    });
    await t.rejects(checkedAnswers(server.url, [one!, other!]), /Expected .* answered 200/);
    const all = refusals(one!, other!);
    t.same(
      all.map(({ what }) => what),
      ['no credential', 'unknown', 'cut short', 'another kind', 'revoked'],
    );
    for (const refusal of all) {
      await t.rejects(checkRefusals(server.url, [refusal]), /must get 40[13] .* answered 200/);
    }
    await server.stop();
  },
);
