/** Clients in the run's own process: each asks again as soon as it was answered. */
import { systemClock } from '../src/runtime/clock.js';
import { LatencyHistogram } from './statistics.js';

/** What so many clients came to. */
export interface ClientsResult {
  readonly answered: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
}

/** `act` is one request of a client; what it rejects with ends the run. */
export async function runClients(
  clients: number,
  durationMs: number,
  act: (client: number) => Promise<unknown>,
): Promise<ClientsResult> {
  const latency = new LatencyHistogram();
  const beginMs = systemClock.monotonicMs();
  const endMs = beginMs + durationMs;
  await Promise.all(
    Array.from({ length: clients }, async (_, client) => {
      for (let nowMs = systemClock.monotonicMs(); nowMs < endMs; ) {
        await act(client);
        const answeredMs = systemClock.monotonicMs();
        latency.record((answeredMs - nowMs) * 1000);
        nowMs = answeredMs;
      }
    }),
  );
  const elapsedMs = systemClock.monotonicMs() - beginMs;
  return {
    answered: latency.count,
    perSecond: (latency.count * 1000) / elapsedMs,
    p50Ms: latency.percentile(50) / 1000,
    p95Ms: latency.percentile(95) / 1000,
    p99Ms: latency.percentile(99) / 1000,
  };
}
