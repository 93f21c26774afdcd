/** `/metrics`: what all threads counted, in Prometheus' text format, on a listener of its own. */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { collectDefaultMetrics, type Metric, Registry } from 'prom-client';
import type { ActorSnapshot } from '../runtime/actor-metrics.js';
import { describe } from '../runtime/failure.js';
import type { HistogramSnapshot } from '../runtime/histogram.js';
import type { Log } from '../runtime/log.js';
import type { FrontSnapshot } from './front-metrics.js';
import {
  actorFamilies,
  frontFamilies,
  type Labels,
  type MetricFamily,
} from './metrics-families.js';
import { pushFamilies } from './push/push-families.js';

/** Everything that is rendered at one scrape. */
export interface MetricsSnapshot {
  readonly fronts: readonly FrontSnapshot[];
  readonly actors: readonly ActorSnapshot[];
  /** What else there is to tell: store, leases, push. */
  readonly others: readonly MetricFamily[];
}

/** Asked at every scrape; a rejection answers the scrape with 503. */
export type CollectMetrics = () => Promise<MetricsSnapshot> | MetricsSnapshot;

/** Serves `/metrics` until it is closed. */
export class MetricsListener {
  private constructor(
    private readonly server: Server,
    readonly port: number,
    readonly url: string,
  ) {}

  /** Port 0 means a free one. Rejects when the port cannot be had. */
  static open(
    { host, port }: { readonly host: string; readonly port: number },
    collect: CollectMetrics,
    log: Log,
  ): Promise<MetricsListener> {
    const server = createServer(scrapeHandler(collect, log));
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, host, () => {
        server.removeListener('error', reject);
        server.on('error', (error) => {
          log.error({ error: describe(error) }, 'The metrics listener failed.');
        });
        const address = server.address() as AddressInfo;
        const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
        const url = `http://${name}:${address.port}`;
        resolve(new MetricsListener(server, address.port, url));
      });
    });
  }

  /** Idempotent; ends open connections too. */
  close(): Promise<void> {
    return new Promise((closed) => {
      this.server.close(() => closed());
      this.server.closeAllConnections();
    });
  }
}

function scrapeHandler(collect: CollectMetrics, log: Log): RequestListener {
  const registry = new Registry();
  // Node's own metrics of the process and of the main thread.
  collectDefaultMetrics({ register: registry });
  return (request, response) => {
    const path = request.url?.split('?')[0];
    if (path !== '/metrics' && path !== '/') {
      response.writeHead(404).end();
      return;
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.writeHead(405, { allow: 'GET, HEAD' }).end();
      return;
    }
    Promise.resolve()
      .then(collect)
      .then((snapshot) => renderMetrics(snapshot, registry))
      .then((text) => response.writeHead(200, { 'content-type': registry.contentType }).end(text))
      .catch((error: unknown) => {
        log.error({ error: describe(error) }, 'Metrics could not be collected.');
        response.writeHead(503, { 'retry-after': '1' }).end();
      });
  };
}

/** The text of a scrape: what was collected, then whatever `registry` has of its own. */
export async function renderMetrics(
  snapshot: MetricsSnapshot,
  registry: Registry,
): Promise<string> {
  const families = [
    ...frontFamilies(snapshot.fronts),
    ...pushFamilies(snapshot.fronts),
    ...actorFamilies(snapshot.actors),
    ...snapshot.others,
  ];
  const rendered = new Registry();
  for (const family of families) {
    // A metric that was counted elsewhere: all that rendering asks of it is its values.
    const metric = { name: family.name, get: async () => ({ ...family, values: values(family) }) };
    rendered.registerMetric(metric as unknown as Metric);
  }
  return `${await rendered.metrics()}\n${await registry.metrics()}`;
}

interface Value {
  readonly metricName?: string;
  readonly labels: Labels;
  readonly value: number;
}

function values(family: MetricFamily): readonly Value[] {
  if (family.type !== 'histogram') return family.samples;
  return family.histograms.flatMap(({ labels, histogram, scale }) =>
    histogramValues(family.name, labels, histogram, scale),
  );
}

/** Snapshots count each bucket for itself, Prometheus all up to its bound. */
function histogramValues(
  name: string,
  labels: Labels,
  { bounds, counts, sum }: HistogramSnapshot,
  scale: number,
): Value[] {
  let total = 0;
  const buckets = counts.map((count, index) => {
    total += count;
    const bound = bounds[index];
    const le = bound === undefined ? '+Inf' : String(Number((bound * scale).toPrecision(12)));
    return { metricName: `${name}_bucket`, labels: { ...labels, le }, value: total };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: sum * scale },
    { metricName: `${name}_count`, labels, value: total },
  ];
}
