/** The kinds of sinks that there are. */
import type { HostLookup } from '../../effects/host-lookup.js';
import { JsonLinesFile } from '../../effects/json-lines-file.js';
import { postWebhook } from '../../effects/webhook.js';
import type { Clock } from '../../runtime/clock.js';
import type { ChainedRecord } from '../../storage/evidence-store.js';
import type { Sink, SinkBatch } from './sink.js';
import type { FileSinkSettings, SinkSettings, WebhookSinkSettings } from './sink-settings.js';

/** What sinks need of their thread. */
export interface SinkEnvironment {
  readonly clock: Clock;
  /** Shared by the sinks of a thread. */
  readonly hosts: HostLookup;
}

/** A sink as it is configured; nothing is opened before the first delivery. */
export function openSink(settings: SinkSettings, environment: SinkEnvironment): Sink {
  return settings.type === 'file' ? fileSink(settings) : webhookSink(settings, environment);
}

/** By number and hash: the same number of another history is another record. */
function keyOf({ seq, hash }: Pick<ChainedRecord, 'seq' | 'hash'>): string {
  return `${seq} ${hash}`;
}

function keyOfLine(text: string): string | undefined {
  try {
    const { seq, hash } = JSON.parse(text) as { seq: number; hash: string };
    return keyOf({ seq, hash });
  } catch {
    return undefined;
  }
}

function fileSink({ name, batchMax, path }: FileSinkSettings): Sink {
  const file = new JsonLinesFile(path, keyOfLine);
  return {
    name,
    type: 'file',
    batchMax,
    deliver: ({ records }) =>
      file.append(records.map((record) => ({ key: keyOf(record), text: record.text }))),
    close: () => file.close(),
  };
}

function webhookSink(settings: WebhookSinkSettings, environment: SinkEnvironment): Sink {
  const { name, batchMax } = settings;
  return {
    name,
    type: 'webhook',
    batchMax,
    deliver: (batch, signal) => postWebhook(settings, messageOf(name, batch), environment, signal),
    close: async () => undefined,
  };
}

function messageOf(name: string, { records, epoch }: SinkBatch): Parameters<typeof postWebhook>[1] {
  const [first, last] = [records[0], records.at(-1)];
  return {
    eventId: `audit-${name}-${epoch}-${first?.seq ?? 0}-${last?.seq ?? 0}`,
    contentType: 'application/x-ndjson',
    body: records.map(({ text }) => `${text}\n`).join(''),
  };
}
