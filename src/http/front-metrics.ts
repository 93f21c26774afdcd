/** What one front thread counts. Crosses threads as `FrontSnapshot`, plain data. */
import { Histogram, type HistogramSnapshot, LATENCY_BOUNDS_MS } from '../runtime/histogram.js';
import type { ProblemCode } from './problems.js';
import type { PushSnapshot } from './push/push-metrics.js';

/** One count, held by whoever counts often, so that counting is one addition. */
export interface RequestCounter {
  readonly route: string;
  readonly method: string;
  readonly status: number;
  count: number;
}

/** All counts of one front thread since it started; times in milliseconds. */
export interface FrontSnapshot {
  readonly requests: readonly Readonly<RequestCounter>[];
  readonly durationsMs: readonly {
    readonly route: string;
    readonly histogram: HistogramSnapshot;
  }[];
  readonly failures: readonly { readonly code: ProblemCode; readonly count: number }[];
  readonly inFlight: number;
  readonly aborted: number;
  readonly bodyBytes: number;
  readonly push?: PushSnapshot;
}

/** Methods that are told apart; others share a label, since clients could invent any number. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
export const OTHER_METHOD = 'OTHER';

/** The counters of one front thread. */
export class FrontMetrics {
  /** HTTP connections that are open; one that became a WebSocket is none any more. */
  connections = 0;
  inFlight = 0;
  aborted = 0;
  bodyBytes = 0;
  /** Called whenever a connection ended, as each does with its answer during a drain. */
  onConnectionEnded: (() => void) | undefined;
  private readonly counters = new Map<string, RequestCounter>();
  private readonly durations = new Map<string, Histogram>();
  private readonly failures = new Map<ProblemCode, number>();

  /** A connection was opened (1) or is none any more (-1). */
  connectionsChanged(by: number): void {
    this.connections += by;
    if (by < 0) this.onConnectionEnded?.();
  }

  /** `route` is a template, never a path. */
  counter(route: string, method: string, status: number): RequestCounter {
    const label = METHODS.has(method) ? method : OTHER_METHOD;
    const key = `${label} ${status} ${route}`;
    let counter = this.counters.get(key);
    if (counter === undefined) {
      counter = { route, method: label, status, count: 0 };
      this.counters.set(key, counter);
    }
    return counter;
  }

  duration(route: string): Histogram {
    let histogram = this.durations.get(route);
    if (histogram === undefined) {
      histogram = new Histogram(LATENCY_BOUNDS_MS);
      this.durations.set(route, histogram);
    }
    return histogram;
  }

  failed(code: ProblemCode): void {
    this.failures.set(code, (this.failures.get(code) ?? 0) + 1);
  }

  snapshot(): FrontSnapshot {
    return {
      requests: [...this.counters.values()]
        .filter(({ count }) => count > 0)
        .map((counter) => ({ ...counter })),
      durationsMs: [...this.durations].map(([route, histogram]) => ({
        route,
        histogram: histogram.snapshot(),
      })),
      failures: [...this.failures].map(([code, count]) => ({ code, count })),
      inFlight: this.inFlight,
      aborted: this.aborted,
      bodyBytes: this.bodyBytes,
    };
  }
}
