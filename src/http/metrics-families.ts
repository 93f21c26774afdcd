/** What the threads counted, as families of metrics: plain data in, plain data out. */
import type { ActorSnapshot } from '../runtime/actor-metrics.js';
import type { HistogramSnapshot } from '../runtime/histogram.js';
import type { FrontSnapshot } from './front-metrics.js';

/** Label names and values of one sample. */
export type Labels = Readonly<Record<string, string>>;

/** One number under its labels. */
export interface Sample {
  readonly labels: Labels;
  readonly value: number;
}

/** One metric with all its label sets. Names and units follow the Prometheus conventions. */
export type MetricFamily =
  | {
      readonly name: string;
      readonly help: string;
      readonly type: 'counter' | 'gauge';
      readonly samples: readonly Sample[];
    }
  | {
      readonly name: string;
      readonly help: string;
      readonly type: 'histogram';
      readonly histograms: readonly {
        readonly labels: Labels;
        readonly histogram: HistogramSnapshot;
        /** What bounds and sum are multiplied by, such as 0.001 for ms shown as seconds. */
        readonly scale: number;
      }[];
    };

const SECONDS_PER_MS = 0.001;

/** The front threads' counts, added up: which thread took a connection is the kernel's choice. */
export function frontFamilies(fronts: readonly FrontSnapshot[]): MetricFamily[] {
  const requests = new Map<string, { labels: Labels; value: number }>();
  const failures = new Map<string, { labels: Labels; value: number }>();
  const durations = new Map<string, HistogramSnapshot>();
  for (const front of fronts) {
    for (const { route, method, status, count } of front.requests) {
      add(requests, { route, method, status: String(status) }, count);
    }
    for (const { code, count } of front.failures) add(failures, { code }, count);
    for (const { route, histogram } of front.durationsMs) {
      const before = durations.get(route);
      durations.set(route, before === undefined ? histogram : addHistograms(before, histogram));
    }
  }
  return [
    counter('halo_http_requests_total', 'Requests answered.', [...requests.values()]),
    counter('halo_http_failures_total', 'Problems answered, by code.', [...failures.values()]),
    {
      name: 'halo_http_request_duration_seconds',
      help: 'From the headers of a request to its answer.',
      type: 'histogram',
      histograms: [...durations].map(([route, histogram]) => ({
        labels: { route },
        histogram,
        scale: SECONDS_PER_MS,
      })),
    },
    gauge('halo_http_in_flight', 'Requests waiting for an answer.', [
      { labels: {}, value: sum(fronts, ({ inFlight }) => inFlight) },
    ]),
    counter('halo_http_aborted_total', 'Requests whose client went away before the answer.', [
      { labels: {}, value: sum(fronts, ({ aborted }) => aborted) },
    ]),
    counter('halo_http_body_bytes_total', 'Bytes of request bodies read.', [
      { labels: {}, value: sum(fronts, ({ bodyBytes }) => bodyBytes) },
    ]),
  ];
}

/** The actors’ counts, each under its name and, where they differ, its lane. */
export function actorFamilies(actors: readonly ActorSnapshot[]): MetricFamily[] {
  return [...actorCounts(actors), ...actorHistograms(actors)];
}

function actorCounts(actors: readonly ActorSnapshot[]): MetricFamily[] {
  const each = (value: (actor: ActorSnapshot) => number): Sample[] =>
    actors.map((actor) => ({ labels: { actor: actor.name }, value: value(actor) }));
  return [
    gauge(
      'halo_actor_up',
      'Whether the actor runs.',
      each((a) => (a.state === 'running' ? 1 : 0)),
    ),
    gauge(
      'halo_actor_lane_depth',
      'Messages waiting in a lane.',
      actors.flatMap((actor) => [
        { labels: { actor: actor.name, lane: 'read' }, value: actor.readDepth },
        { labels: { actor: actor.name, lane: 'write' }, value: actor.writeDepth },
      ]),
    ),
    counter(
      'halo_actor_restarts_total',
      'Restarts.',
      each((a) => a.restarts),
    ),
    counter(
      'halo_actor_rejected_total',
      'Messages refused by a full lane.',
      each((a) => a.rejected),
    ),
    counter(
      'halo_actor_expired_total',
      'Messages past their deadline.',
      each((a) => a.expired),
    ),
    counter(
      'halo_actor_catch_ups_total',
      'Catch-ups.',
      each((a) => a.catchUps),
    ),
    counter(
      'halo_actor_catch_up_failures_total',
      'Failed ones.',
      each((a) => a.catchUpFailures),
    ),
    counter(
      'halo_actor_commits_total',
      'Commits.',
      each((a) => a.commits),
    ),
  ];
}

function actorHistograms(actors: readonly ActorSnapshot[]): MetricFamily[] {
  const lanes = (
    read: (actor: ActorSnapshot) => HistogramSnapshot,
    write: (actor: ActorSnapshot) => HistogramSnapshot,
    scale: number,
  ): { labels: Labels; histogram: HistogramSnapshot; scale: number }[] =>
    actors.flatMap((actor) => [
      { labels: { actor: actor.name, lane: 'read' }, histogram: read(actor), scale },
      { labels: { actor: actor.name, lane: 'write' }, histogram: write(actor), scale },
    ]);
  return [
    {
      name: 'halo_actor_batch_size',
      help: 'Messages handled together.',
      type: 'histogram',
      histograms: lanes(
        (a) => a.readBatch,
        (a) => a.writeBatch,
        1,
      ),
    },
    {
      name: 'halo_actor_wait_seconds',
      help: 'How long messages waited in a lane.',
      type: 'histogram',
      histograms: lanes(
        (a) => a.readWaitMs,
        (a) => a.writeWaitMs,
        SECONDS_PER_MS,
      ),
    },
    {
      name: 'halo_actor_handle_seconds',
      help: 'How long a batch took.',
      type: 'histogram',
      histograms: lanes(
        (a) => a.readHandleMs,
        (a) => a.writeHandleMs,
        SECONDS_PER_MS,
      ),
    },
  ];
}

function counter(name: string, help: string, samples: readonly Sample[]): MetricFamily {
  return { name, help, type: 'counter', samples };
}

function gauge(name: string, help: string, samples: readonly Sample[]): MetricFamily {
  return { name, help, type: 'gauge', samples };
}

function add(
  into: Map<string, { labels: Labels; value: number }>,
  labels: Labels,
  value: number,
): void {
  const key = JSON.stringify(labels);
  const sample = into.get(key);
  if (sample === undefined) into.set(key, { labels, value });
  else sample.value += value;
}

function sum<T>(items: readonly T[], value: (item: T) => number): number {
  return items.reduce((total, item) => total + value(item), 0);
}

/** All front threads run the same binary, so that their bounds are the same. */
function addHistograms(a: HistogramSnapshot, b: HistogramSnapshot): HistogramSnapshot {
  return {
    bounds: a.bounds,
    counts: a.counts.map((count, index) => count + (b.counts[index] ?? 0)),
    sum: a.sum + b.sum,
  };
}

/** What the threads' stores say of themselves, under the names that API.md promises. */
export function storeFamilies(store: Readonly<Record<string, number>>): MetricFamily[] {
  const none = { labels: {} };
  return [
    {
      name: 'halo_db_errors_total',
      help: 'Errors of the database and of the connections to it.',
      type: 'counter',
      samples: [{ ...none, value: store['dbErrors'] ?? 0 }],
    },
    {
      name: 'halo_db_open_connections',
      help: 'Connections to the database that are open now.',
      type: 'gauge',
      samples: [{ ...none, value: store['dbOpenConnections'] ?? 0 }],
    },
  ];
}

/** What became of the log: lines are lost when nobody reads standard output. */
export function logFamilies(droppedLines: number): MetricFamily[] {
  const help = 'Log lines dropped because standard output was full or could not be written.';
  return [counter('halo_log_dropped_lines_total', help, [{ labels: {}, value: droppedLines }])];
}
