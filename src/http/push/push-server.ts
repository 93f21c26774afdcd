/**
 * The kill list's push of one front thread: registers the stream's route, feeds the mirror, beats,
 * reports acknowledgements, and ends streams when this replica has nothing true to say.
 */
import type { TemplatedApp } from 'uWebSockets.js';
import { GATEWAYS_ACTOR, type GatewaysClient } from '../../actors/gateways/client.js';
import type { GatewaysNews } from '../../actors/gateways/messages.js';
import { KILL_LIST_ACTOR, type KillListClient } from '../../actors/kill-list/client.js';
import type { KillListNews } from '../../actors/kill-list/messages.js';
import type { LimiterClient } from '../../actors/limiter/client.js';
import { repeat, type Timer } from '../../runtime/clock.js';
import { describe } from '../../runtime/failure.js';
import type { Random } from '../../runtime/random.js';
import type { ExchangeHost } from '../exchange.js';
import { STREAM_PATH } from '../routes/kill-list-stream.js';
import { CLOSE } from './frames.js';
import { type KillListAnswer, KillListDocument } from './kill-list-document.js';
import { KillListFeed } from './kill-list-feed.js';
import type { StreamSocketData } from './kill-stream.js';
import { KillStreams, TICK_MS } from './kill-streams.js';
import { PushMetrics, type PushSnapshot } from './push-metrics.js';
import { StreamUpgrade } from './stream-upgrade.js';

/** A replica that has not refreshed for so long closes its streams (API.md). */
export const SILENT_MAX_MS = 10_000;
/** A tick that comes this late says that the process stood still: news wait to be heard first. */
const TICK_LATE_MAX_MS = 1_000;
/** How often acknowledgements are reported (issue 4: one batched upsert per second). */
const REPORT_PERIOD_MS = 1_000;
/**
 * What the library takes of one message. More than is allowed, so that a frame that is too long can
 * be answered by a close with a reason; beyond this the library cuts the connection.
 */
const MESSAGE_BYTES_MAX = 4 * 1024;
/** Beyond our own pings: for sockets that get no heartbeat, such as those in a snapshot. */
const IDLE_TIMEOUT_SECONDS = 60;
/**
 * A backstop far above `BUFFER_BYTES_MAX`, at which a stream is closed with a code: the library
 * would drop the close frame as well.
 */
const LIBRARY_BUFFER_BYTES_MAX = 64 * 1024 * 1024;

/** What the push needs of its front server. */
export interface PushServices {
  readonly host: ExchangeHost;
  readonly kills: KillListClient;
  readonly gateways: GatewaysClient;
  readonly limiter: LimiterClient;
  readonly random: Random;
}

/** One for each front server. Order: `register`, `start`, `end`, `stop`. */
export class PushServer {
  private readonly feed: KillListFeed;
  private readonly streams: KillStreams;
  private readonly metrics = new PushMetrics();
  private readonly document: KillListDocument;
  /** Tells the gateways actor which front thread reports. */
  private readonly front: string;
  private tickTimer: Timer | undefined;
  private tickedAtMs = 0;
  private reportedAtMs = 0;
  private reportedStreams = 0;
  private ending = false;

  constructor(private readonly services: PushServices) {
    const { host, kills, random } = services;
    this.front = Buffer.from(random.bytes(8)).toString('hex');
    this.feed = new KillListFeed(kills, host.clock, {
      changed: () => this.streams.changed(),
      replaced: () => void this.streams.endAll(CLOSE.restart),
    });
    this.document = new KillListDocument(this.feed);
    this.streams = new KillStreams(this.feed.mirror, host.clock, random, this.metrics);
  }

  /** Before any route that would take the path. */
  register(app: TemplatedApp): void {
    const { feed, streams } = this;
    const { host, gateways, limiter } = this.services;
    const refusing = (): boolean => this.ending || feed.silentMs > SILENT_MAX_MS;
    const upgrade = new StreamUpgrade({ host, feed, streams, gateways, limiter, refusing });
    app.ws<StreamSocketData>(STREAM_PATH, {
      maxPayloadLength: MESSAGE_BYTES_MAX,
      idleTimeout: IDLE_TIMEOUT_SECONDS,
      sendPingsAutomatically: true,
      maxBackpressure: LIBRARY_BUFFER_BYTES_MAX,
      closeOnBackpressureLimit: 1,
      upgrade: (res, req, context) => upgrade.serve(res, req, context),
      subscription: () => upgrade.subscribed(),
      open: (socket) => streams.open(socket),
      message: (socket, frame, isBinary) =>
        streams.received(socket.getUserData().stream, frame, isBinary),
      ping: (socket) => streams.pinged(socket.getUserData().stream),
      pong: (socket) => {
        socket.getUserData().stream.heardAtMs = host.clock.monotonicMs();
      },
      drain: (socket) => streams.drained(socket.getUserData().stream),
      close: (socket) => streams.closed(socket.getUserData().stream),
    });
  }

  /** Asks for the list and begins to beat. */
  start(): void {
    this.tickedAtMs = this.services.host.clock.monotonicMs();
    this.feed.start();
    this.tickTimer = repeat(this.services.host.clock, TICK_MS, () => this.tick());
  }

  /** The list for whoever polls; see `KillListDocument.current`. */
  killList(): Promise<KillListAnswer> {
    return this.document.current();
  }

  /** News of an actor, in order with its answers; those of others are ignored. */
  hear(actor: string, message: unknown): void {
    if (actor === KILL_LIST_ACTOR) this.feed.hear(message as KillListNews);
    if (actor !== GATEWAYS_ACTOR) return;
    const news = message as GatewaysNews;
    if (news.type === 'ended') this.streams.endCredentials(news.credentials);
    else this.streams.endOthers(news.credentials);
  }

  /** The server shuts down: no new streams, and a goodbye to those that are open. */
  async end(): Promise<void> {
    this.ending = true;
    await this.streams.endAll(CLOSE.restart);
    this.report();
  }

  /** Idempotent, and safe before `start`. Nothing is sent any more. */
  stop(): void {
    this.ending = true;
    this.feed.stop();
    this.tickTimer?.cancel();
    this.tickTimer = undefined;
  }

  snapshot(): PushSnapshot {
    const { mirror, silentMs } = this.feed;
    const gateways = this.streams.gateways.report();
    return this.metrics.snapshot({
      streams: this.streams.size,
      gateways: gateways.length,
      gatewaysBehind: gateways.filter(({ ackVersion }) => ackVersion < mirror.version).length,
      version: mirror.version,
      silentMs,
    });
  }

  private tick(): void {
    const nowMs = this.services.host.clock.monotonicMs();
    const lateMs = nowMs - this.tickedAtMs - TICK_MS;
    this.tickedAtMs = nowMs;
    if (lateMs > TICK_LATE_MAX_MS) this.streams.stoodStill(lateMs);
    else if (this.feed.silentMs > SILENT_MAX_MS) {
      void this.streams.endAll(CLOSE.tryLater);
      return;
    }
    this.streams.beat();
    if (nowMs - this.reportedAtMs < REPORT_PERIOD_MS) return;
    this.reportedAtMs = nowMs;
    this.report();
  }

  private report(): void {
    const { gateways, host } = this.services;
    const { position } = this.feed.mirror;
    if (position === undefined) return;
    const open = this.streams.size;
    if (open === 0 && this.reportedStreams === 0) return;
    this.reportedStreams = open;
    const report = {
      front: this.front,
      epoch: position.epoch,
      gateways: this.streams.gateways.report(),
    };
    gateways.report(report).catch((error: unknown) => {
      host.log.debug({ error: describe(error) }, 'Acknowledgements could not be reported.');
    });
  }
}
