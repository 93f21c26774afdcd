import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import type { ExpectedAnswer, Generator, LoadJob, LoadResult } from '../load/generator.js';
import { shareOf } from '../load/generator.js';
import { AutocannonGenerator } from '../load/generator-autocannon.js';
import { WrkGenerator } from '../load/generator-wrk.js';
import { LatencyHistogram } from '../load/statistics.js';

const CONNECTIONS = 8;
const answers: ExpectedAnswer[] = Array.from({ length: 40 }, (_, index) => ({
  credential: `credential-${index}`,
  device: `dev_${index}`,
  user: `user-${index % 7}`,
  body: JSON.stringify({ device: { id: `dev_${index}`, user: `user-${index % 7}` } }),
}));
const byCredential = new Map(answers.map((answer) => [`Bearer ${answer.credential}`, answer]));

type Fault = (answer: ExpectedAnswer, response: ServerResponse, count: number) => boolean;

function allow(answer: ExpectedAnswer, response: ServerResponse): void {
  response.setHeader('x-halo-device', answer.device);
  response.setHeader('x-halo-user', answer.user);
  response.end(answer.body);
}

/** A server that answers rightly, but for what `fault` takes over by returning true. */
async function serve(t: Test, fault: Fault = () => false): Promise<{ url: string; seen: Seen }> {
  const seen: Seen = { requests: 0, credentials: new Set() };
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    seen.requests += 1;
    seen.credentials.add(request.headers.authorization ?? '');
    const answer = byCredential.get(request.headers.authorization ?? '')!;
    if (!fault(answer, response, seen.requests)) allow(answer, response);
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  t.teardown(() => server.closeAllConnections());
  t.teardown(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

interface Seen {
  requests: number;
  credentials: Set<string>;
}

function job(...urls: string[]): LoadJob {
  return { urls, path: '/check', connections: CONNECTIONS, durationMs: 1000, answers };
}

function latencyOf(result: LoadResult): LatencyHistogram {
  const latency = new LatencyHistogram();
  latency.merge(result.latency);
  return latency;
}

/** Alternately the answer of the device before and after: right ones, but not for this request. */
const exchanged: Fault = (answer, response, count) => {
  const other = answers[(answers.indexOf(answer) + 1) % answers.length]!;
  if (count % 10 === 0) allow(other, response);
  return count % 10 === 0;
};
const wrongStatus: Fault = (_answer, response, count) => {
  response.statusCode = count % 10 === 0 ? 503 : 200;
  return false;
};
const wrongUser: Fault = (answer, response, count) => {
  if (count % 10 !== 0) return false;
  response.setHeader('x-halo-device', answer.device);
  response.setHeader('x-halo-user', 'mallory');
  response.end(answer.body);
  return true;
};
const cutBody: Fault = (answer, response, count) => {
  if (count % 10 !== 0) return false;
  response.setHeader('x-halo-device', answer.device);
  response.setHeader('x-halo-user', answer.user);
  response.end(answer.body.slice(0, -1));
  return true;
};
const closes: Fault = (_answer, response, count) => {
  if (count % 10 === 0) response.destroy();
  return count % 10 === 0;
};

function checkGenerator(name: string, make: (t: Test) => Generator): void {
  t.test(`${name} counts right answers and spreads connections and credentials`, async (t) => {
    const [left, right] = [await serve(t), await serve(t)];
    const generator = make(t);
    const result = await generator.run(job(left.url, right.url));
    t.match(result, { errors: 0, wrong: 0, firstWrong: '' });
    t.ok(result.answered > 200, `${result.answered} answers`);
    t.ok(result.elapsedMs > 800 && result.elapsedMs < 5000, `took ${result.elapsedMs} ms`);
    t.ok(result.generatorCpuMs > 0);
    const sent = left.seen.requests + right.seen.requests;
    t.ok(sent >= result.answered && sent <= result.answered + CONNECTIONS, 'no more, no fewer');
    t.ok(left.seen.requests > 0 && right.seen.requests > 0, 'both servers were asked');
    t.equal(new Set([...left.seen.credentials, ...right.seen.credentials]).size, answers.length);
    t.ok(latencyOf(result).count >= result.answered);
    const again = await generator.run(job(left.url));
    t.match(again, { errors: 0, wrong: 0 }, 'a second job counts from zero');
  });

  const faults: readonly (readonly [what: string, fault: Fault])[] = [
    ['the status', wrongStatus],
    ['the user', wrongUser],
    ['the body', cutBody],
  ];
  for (const [what, fault] of faults) {
    t.test(`${name} notices every answer that is wrong in ${what}`, async (t) => {
      const { url, seen } = await serve(t, fault);
      const result = await make(t).run(job(url));
      const expected = Math.floor(seen.requests / 10);
      t.ok(Math.abs(result.wrong - expected) <= CONNECTIONS, `${result.wrong} of ${expected}`);
      t.not(result.firstWrong, '');
    });
  }

  t.test(`${name} notices answers that belong to another request`, async (t) => {
    const { url } = await serve(t, exchanged);
    const result = await make(t).run(job(url));
    t.ok(result.wrong > 0, `${result.wrong} wrong`);
  });

  t.test(`${name} counts connections that the server closes as errors`, async (t) => {
    const { url, seen } = await serve(t, closes);
    const result = await make(t).run(job(url));
    const expected = Math.floor(seen.requests / 10);
    t.ok(result.errors >= expected * 0.5, `${result.errors} errors for ${expected}`);
  });

  t.test(`${name} reports a server that is not there`, async (t) => {
    // wrk itself refuses to begin; autocannon tries until the end.
    const run = make(t).run(job('http://127.0.0.1:1'));
    const result = await run.catch(() => ({ answered: 0, errors: 1 }));
    t.equal(result.answered, 0);
    t.ok(result.errors > 0);
  });
}

checkGenerator('autocannon', (t) => {
  const generator = new AutocannonGenerator();
  t.teardown(() => generator.stop());
  return generator;
});
if (WrkGenerator.isInstalled()) {
  checkGenerator('wrk', (t) => new WrkGenerator(t.testdir({})));
} else {
  t.comment('wrk is not installed: its generator is not tested');
}

t.test('autocannon keeps a rate over all connections', async (t) => {
  const { url } = await serve(t);
  const generator = new AutocannonGenerator();
  t.teardown(() => generator.stop());
  const result = await generator.run({ ...job(url), durationMs: 2000, ratePerSecond: 400 });
  t.ok(result.answered >= 500 && result.answered <= 1700, `${result.answered} answers in 2 s`);
});

t.test('a slow answer at a rate counts for the requests that waited behind it', async (t) => {
  const slow: Fault = (answer, response, count) => {
    if (count !== 50) return false;
    setTimeout(() => allow(answer, response), 500);
    return true;
  };
  const { url } = await serve(t, slow);
  const generator = new AutocannonGenerator();
  t.teardown(() => generator.stop());
  const result = await generator.run({ ...job(url), durationMs: 2000, ratePerSecond: 800 });
  const latency = latencyOf(result);
  // 100 requests/s on that connection: 50 of them would have been sent within the half second.
  t.ok(latency.count >= result.answered + 45, `${latency.count} for ${result.answered} answers`);
});

t.test('connections share the credentials out, and each has at least one', async (t) => {
  const items = [0, 1, 2, 3, 4];
  t.same(shareOf(items, 0, 2), [0, 2, 4]);
  t.same(shareOf(items, 1, 2), [1, 3]);
  t.same(shareOf(items, 7, 8), [2]);
  t.same(
    [0, 1, 2, 3, 4].flatMap((index) => shareOf(items, index, 5)),
    items,
  );
});
