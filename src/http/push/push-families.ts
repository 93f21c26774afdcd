/** What the push of all front threads counted, as families of metrics. */
import type { FrontSnapshot } from '../front-metrics.js';
import type { MetricFamily, Sample } from '../metrics-families.js';
import type { PushSnapshot } from './push-metrics.js';

/** Empty when no front thread has said anything yet. */
export function pushFamilies(fronts: readonly FrontSnapshot[]): MetricFamily[] {
  const pushes = fronts.flatMap(({ push }) => (push === undefined ? [] : [push]));
  if (pushes.length === 0) return [];
  const sum = (of: (push: PushSnapshot) => number): number =>
    pushes.reduce((total, push) => total + of(push), 0);
  const most = (of: (push: PushSnapshot) => number): number => Math.max(...pushes.map(of));
  return [
    one(
      'gauge',
      'halo_push_streams',
      'Streams that are open.',
      sum(({ streams }) => streams),
    ),
    one(
      'gauge',
      'halo_push_gateways',
      'Gateways with a stream, counted on each front thread.',
      sum(({ gateways }) => gateways),
    ),
    one(
      'gauge',
      'halo_push_gateways_behind',
      'Of those, gateways that have not acknowledged the newest version.',
      sum(({ gatewaysBehind }) => gatewaysBehind),
    ),
    one(
      'gauge',
      'halo_kill_list_age_seconds',
      'Since the list was last known to be current, on the front thread where it is longest.',
      most(({ silentMs }) => silentMs) / 1000,
    ),
    one(
      'gauge',
      'halo_kill_list_version',
      'The version that is served; the least of all front threads, -1 without a list.',
      -most(({ version }) => -version),
    ),
    opened(pushes),
    one(
      'counter',
      'halo_push_frames_sent_total',
      'Frames sent to streams.',
      sum(({ framesSent }) => framesSent),
    ),
    one(
      'counter',
      'halo_push_bytes_sent_total',
      'Bytes of those frames.',
      sum(({ bytesSent }) => bytesSent),
    ),
    one(
      'counter',
      'halo_push_frames_received_total',
      'Frames that clients sent.',
      sum(({ framesReceived }) => framesReceived),
    ),
    closed(pushes),
  ];
}

function one(type: 'counter' | 'gauge', name: string, help: string, value: number): MetricFamily {
  return { name, help, type, samples: [{ labels: {}, value }] };
}

/** Reconnects are those that resumed: their client held a version already. */
function opened(pushes: readonly PushSnapshot[]): MetricFamily {
  const all = pushes.reduce((total, push) => total + push.opened, 0);
  const resumed = pushes.reduce((total, push) => total + push.resumed, 0);
  return {
    name: 'halo_push_streams_opened_total',
    help: 'Streams opened, by whether the client came back with a version.',
    type: 'counter',
    samples: [
      { labels: { resumed: 'true' }, value: resumed },
      { labels: { resumed: 'false' }, value: all - resumed },
    ],
  };
}

function closed(pushes: readonly PushSnapshot[]): MetricFamily {
  const byCode = new Map<string, number>();
  for (const push of pushes) {
    for (const [code, count] of Object.entries(push.closed)) {
      byCode.set(code, (byCode.get(code) ?? 0) + count);
    }
  }
  const samples: Sample[] = [...byCode].map(([code, value]) => ({ labels: { code }, value }));
  return {
    name: 'halo_push_closed_total',
    help: 'Streams that this side ended, by close code; silent: peers without a sign of life.',
    type: 'counter',
    samples,
  };
}
