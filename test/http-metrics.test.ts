/** What the front threads count, and how it is shown to Prometheus. */
import t from 'tap';
import { FrontMetrics, type FrontSnapshot } from '../src/http/front-metrics.js';
import { MetricsListener, type MetricsSnapshot } from '../src/http/metrics-exposition.js';
import { ActorMetrics, type ActorSnapshot } from '../src/runtime/actor-metrics.js';
import { type Log, silentLog } from '../src/runtime/log.js';
import { call, rawRequest } from './fixtures/http-client.js';
import { ADMIN_TOKEN, CREDENTIAL, startFront } from './fixtures/http-front.js';

interface Metric {
  readonly type: string;
  readonly values: Map<string, number>;
}

/** Reads the text format back; fails on a line that is none of it. */
function parsed(text: string): Map<string, Metric> {
  const metrics = new Map<string, Metric>();
  let current: Metric = { type: '', values: new Map() };
  for (const line of text.split('\n').filter((one) => one !== '')) {
    const type = /^# TYPE (\w+) (counter|gauge|histogram|summary)$/.exec(line);
    const sample = /^(\w+(?:\{[^}]*\})?) ([-+]?(?:\d[\d.e+-]*|Inf|NaN|Nan))$/.exec(line);
    if (type !== null) {
      t.notOk(metrics.has(type[1] as string), `${type[1]} is there once`);
      current = { type: type[2] as string, values: new Map() };
      metrics.set(type[1] as string, current);
    } else if (sample !== null) {
      current.values.set(sample[1] as string, Number(sample[2]));
    } else if (!line.startsWith('# HELP ')) {
      t.fail(`not of the text format: ${line}`);
    }
  }
  return metrics;
}

function actorSnapshot(name: string): ActorSnapshot {
  const metrics = new ActorMetrics();
  metrics.commits = 3;
  metrics.readBatch.observe(5);
  return {
    name,
    state: 'running',
    readDepth: 1,
    writeDepth: 2,
    facts: {},
    ...metrics.snapshot(),
  } as ActorSnapshot;
}

async function scrape(snapshot: () => MetricsSnapshot): Promise<Map<string, Metric>> {
  const listener = await MetricsListener.open({ host: '127.0.0.1', port: 0 }, snapshot, silentLog);
  try {
    const answer = await call(listener.url, 'GET', '/metrics');
    t.equal(answer.status, 200);
    t.match(answer.headers['content-type'], 'text/plain');
    return parsed(answer.text);
  } finally {
    await listener.close();
  }
}

t.test('requests are counted by template, method and status, never by path', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  await call(front.url, 'GET', '/api/v1/auth/device', { bearer: CREDENTIAL });
  await call(front.url, 'GET', '/api/v1/auth/device', { bearer: CREDENTIAL });
  await call(front.url, 'PROPFIND', '/api/v1/auth/device/x', { bearer: CREDENTIAL });
  await call(front.url, 'GET', '/api/v1/auth/device');
  await call(front.url, 'GET', '/api/v1/devices/some-id', { bearer: ADMIN_TOKEN });
  await call(front.url, 'GET', '/no/such/path');
  await call(front.url, 'POST', '/api/v1/enroll', { body: 'x', headers: {} });
  const { requests, failures, durationsMs, bodyBytes, inFlight } = front.server.snapshot();
  const counted = requests.map((one) => `${one.method} ${one.route} ${one.status} ${one.count}`);
  t.same(counted.sort(), [
    'GET (unknown) 404 1',
    'GET /api/v1/auth/device 200 2',
    'GET /api/v1/auth/device 401 1',
    'GET /api/v1/devices/{id} 404 1',
    'OTHER /api/v1/auth/device/* 200 1',
    'POST /api/v1/enroll 415 1',
  ]);
  t.same(Object.fromEntries(failures.map(({ code, count }) => [code, count])), {
    credential_missing: 1,
    device_not_found: 1,
    route_unknown: 1,
    media_type_unsupported: 1,
  });
  const durations = durationsMs.find(({ route }) => route === '/api/v1/auth/device')?.histogram;
  t.equal(
    durations?.counts.reduce((sum, count) => sum + count, 0),
    3,
  );
  t.equal(bodyBytes, 1);
  t.equal(inFlight, 0);
  const snapshot = front.server.snapshot();
  t.same(structuredClone(snapshot), snapshot, 'it is plain data');
});

t.test('a scrape adds the front threads up and shows actors under their names', async (t) => {
  const one = new FrontMetrics();
  one.counter('/a', 'GET', 200).count = 2;
  one.duration('/a').observe(3);
  one.duration('/a').observe(30_000);
  one.failed('stale');
  one.inFlight = 1;
  const two = new FrontMetrics();
  two.counter('/a', 'GET', 200).count = 5;
  two.counter('/a', 'GET', 404).count = 1;
  two.duration('/a').observe(0.05);
  two.aborted = 4;
  const fronts: FrontSnapshot[] = [one.snapshot(), two.snapshot()];
  const metrics = await scrape(() => ({
    fronts,
    actors: [actorSnapshot('devices')],
    others: [
      {
        name: 'halo_leader',
        help: 'x',
        type: 'gauge',
        samples: [{ labels: { lease: 'controller' }, value: 1 }],
      },
    ],
  }));
  const value = (family: string, sample: string): number | undefined =>
    metrics.get(family)?.values.get(sample);
  const requests = 'halo_http_requests_total';
  t.equal(value(requests, `${requests}{route="/a",method="GET",status="200"}`), 7);
  t.equal(value(requests, `${requests}{route="/a",method="GET",status="404"}`), 1);
  t.equal(metrics.get(requests)?.type, 'counter');
  const duration = 'halo_http_request_duration_seconds';
  t.equal(metrics.get(duration)?.type, 'histogram');
  t.equal(value(duration, `${duration}_bucket{route="/a",le="0.0001"}`), 1);
  t.equal(value(duration, `${duration}_bucket{route="/a",le="0.005"}`), 2);
  t.equal(value(duration, `${duration}_bucket{route="/a",le="5"}`), 2);
  t.equal(value(duration, `${duration}_bucket{route="/a",le="+Inf"}`), 3);
  t.equal(value(duration, `${duration}_count{route="/a"}`), 3);
  t.equal(value(duration, `${duration}_sum{route="/a"}`)?.toFixed(5), '30.00305');
  t.equal(value('halo_http_failures_total', 'halo_http_failures_total{code="stale"}'), 1);
  t.equal(value('halo_http_in_flight', 'halo_http_in_flight'), 1);
  t.equal(value('halo_http_aborted_total', 'halo_http_aborted_total'), 4);
  t.equal(value('halo_actor_commits_total', 'halo_actor_commits_total{actor="devices"}'), 3);
  const depth = 'halo_actor_lane_depth';
  t.equal(value(depth, `${depth}{actor="devices",lane="write"}`), 2);
  const batch = 'halo_actor_batch_size';
  t.equal(value(batch, `${batch}_bucket{actor="devices",lane="read",le="4"}`), 0);
  t.equal(value(batch, `${batch}_bucket{actor="devices",lane="read",le="16"}`), 1);
  t.equal(value('halo_leader', 'halo_leader{lease="controller"}'), 1);
  t.ok(metrics.has('process_cpu_seconds_total'), 'Node’s own are there');
  t.ok(metrics.has('nodejs_eventloop_lag_seconds'));
});

t.test('the listener knows one path, and a failed scrape is 503', async (t) => {
  const lines: unknown[] = [];
  const log: Log = { ...silentLog, error: (fields, message) => lines.push({ fields, message }) };
  const where = { host: '127.0.0.1', port: 0 };
  const failing = (): never => {
    throw new Error('no snapshot');
  };
  const listener = await MetricsListener.open(where, failing, log);
  t.teardown(() => listener.close());
  t.match(await call(listener.url, 'GET', '/metrics?x=1'), { status: 503 });
  t.match(lines, [
    { fields: { error: /no snapshot/ }, message: 'Metrics could not be collected.' },
  ]);
  for (const path of ['/metrics/', '/healthz', '/x']) {
    t.match(await call(listener.url, 'GET', path), { status: 404, text: '' }, path);
  }
  t.match(await call(listener.url, 'POST', '/metrics'), {
    status: 405,
    headers: { allow: 'GET, HEAD' },
  });
  const answer = await rawRequest(listener.port, 'garbage\r\n\r\n');
  t.match(answer.text, /^HTTP\/1\.1 400/);
  await t.rejects(MetricsListener.open({ ...where, port: listener.port }, failing, log));
  await listener.close();
  await listener.close();
});
