/** What the push of one front thread counts. Crosses threads as `PushSnapshot`, plain data. */

/** Counts since the thread started, and how things are now. */
export interface PushSnapshot {
  readonly streams: number;
  readonly gateways: number;
  /** Gateways of which a stream has not acknowledged the version that is served here. */
  readonly gatewaysBehind: number;
  readonly version: number;
  /** How long ago the list was last known to be current, on the monotonic clock. */
  readonly silentMs: number;
  readonly opened: number;
  /** Of those opened: streams of clients that held a version already. */
  readonly resumed: number;
  readonly framesSent: number;
  readonly bytesSent: number;
  readonly framesReceived: number;
  /** By close code; `silent` for peers that gave no sign of life. */
  readonly closed: Readonly<Record<string, number>>;
}

/** The counters of one front thread. */
export class PushMetrics {
  received = 0;
  private openedCount = 0;
  private resumedCount = 0;
  private frames = 0;
  private bytes = 0;
  private readonly closes: Record<string, number> = {};

  opened(resumes: boolean): void {
    this.openedCount += 1;
    if (resumes) this.resumedCount += 1;
  }

  sent(bytes: number): void {
    this.frames += 1;
    this.bytes += bytes;
  }

  closed(why: string): void {
    this.closes[why] = (this.closes[why] ?? 0) + 1;
  }

  snapshot(
    now: Pick<PushSnapshot, 'streams' | 'gateways' | 'gatewaysBehind' | 'version' | 'silentMs'>,
  ): PushSnapshot {
    return {
      ...now,
      opened: this.openedCount,
      resumed: this.resumedCount,
      framesSent: this.frames,
      bytesSent: this.bytes,
      framesReceived: this.received,
      closed: { ...this.closes },
    };
  }
}
