/**
 * The HTTP front end of one thread: sockets in, questions to actors out. Owns no state beyond its
 * sockets. Lives in whatever thread constructs it; a thread must not end while its app is open.
 */
import uWS, { type HttpResponse, type TemplatedApp, type us_listen_socket } from 'uWebSockets.js';
import { type AdminToken, AdminTokens } from './authorization.js';
import { ClientAddresses } from './client-address.js';
import { DeviceAuthentication } from './device-authentication.js';
import type { ExchangeHost } from './exchange.js';
import { FrontMetrics, type FrontSnapshot } from './front-metrics.js';
import { LoadShedding } from './load-shedding.js';
import { openApiDocument } from './openapi.js';
import { PushServer } from './push/push-server.js';
import { RequestIds } from './request-id.js';
import { RouteServer } from './route-server.js';
import { ROUTES } from './routes.js';
import type { FrontOptions, FrontServices, Readiness } from './services.js';
import { TurnClock } from './turn-clock.js';

/**
 * How long draining goes on while no connection ends: what was on its way when it began has arrived
 * by then, and a connection that is in use is closed by its next answer.
 */
const LINGER_MS = 250;

type State = 'new' | 'listening' | 'not-accepting' | 'closed';

/** One per front thread. Order: `listen`, `stopAccepting`, `drain`, `close`. */
export class FrontServer {
  private readonly app: TemplatedApp = uWS.App();
  private readonly metrics = new FrontMetrics();
  private readonly host: ExchangeHost & { draining: boolean };
  private readonly push: PushServer;
  private state: State = 'new';
  private listenSocket: us_listen_socket | undefined;
  private adminTokens: AdminTokens;
  private readiness: Readiness = { ready: false, reasons: ['starting'] };

  /** Throws an Error when `trustedProxies` has something that is no address. */
  constructor(
    private readonly options: FrontOptions,
    private readonly services: FrontServices,
  ) {
    this.adminTokens = new AdminTokens(options.adminTokens);
    const { metrics } = this;
    const { log, clock } = services;
    const sendAsks = (): void => services.sendAsks();
    const requestIds = new RequestIds(services.random);
    this.host = {
      metrics,
      log,
      clock,
      requestIds,
      shedding: new LoadShedding({ metrics, log, clock, requestIds, sendAsks }),
      addresses: new ClientAddresses(options.trustedProxies),
      draining: false,
    };
    const { kills, gateways, limiter, random } = services;
    this.push = new PushServer({ host: this.host, kills, gateways, limiter, random });
    this.register();
  }

  /** Resolves with the port; rejects when it cannot be had. Once only. */
  listen(): Promise<{ port: number }> {
    if (this.state !== 'new') return Promise.reject(new Error('listen() was called before'));
    this.state = 'listening';
    const { host, port } = this.options;
    return new Promise((resolve, reject) => {
      this.app.listen(host, port, (socket) => {
        if (socket === false) {
          reject(new Error(`cannot listen on ${host}:${port}`));
          return;
        }
        this.listenSocket = socket;
        this.push.start();
        resolve({ port: uWS.us_socket_local_port(socket) });
      });
    });
  }

  /** No new connections. Those that exist are still served. Idempotent. */
  stopAccepting(): void {
    if (this.listenSocket === undefined) return;
    uWS.us_listen_socket_close(this.listenSocket);
    this.listenSocket = undefined;
    if (this.state === 'listening') this.state = 'not-accepting';
  }

  /**
   * Ends the streams, and from now on every answer closes its connection. Resolves when nothing is
   * in flight any more and nobody uses the connections that are left (a request may be on its way
   * that its client sent before it could know), or after `deadlineMs`, whichever is first.
   */
  async drain(deadlineMs: number): Promise<void> {
    this.host.draining = true;
    await this.push.end();
    const { clock } = this.services;
    const endMs = clock.monotonicMs() + deadlineMs;
    let open = this.metrics.connections;
    let sinceMs = clock.monotonicMs();
    for (;;) {
      const nowMs = clock.monotonicMs();
      if (open !== this.metrics.connections) {
        open = this.metrics.connections;
        sinceMs = nowMs;
      }
      const lingerEndMs = open > 0 ? sinceMs + LINGER_MS : nowMs;
      const untilMs = this.metrics.inFlight > 0 ? endMs : Math.min(endMs, lingerEndMs);
      if (nowMs >= untilMs) return;
      await this.connectionEnded(untilMs - nowMs);
    }
  }

  /** Resolves when a connection ends, at the latest after so long. */
  private async connectionEnded(withinMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = this.services.clock.schedule(resolve, withinMs);
      this.metrics.onConnectionEnded = () => {
        timer.cancel();
        resolve();
      };
    });
    this.metrics.onConnectionEnded = undefined;
  }

  /** Closes every connection at once. Idempotent, and safe before `listen`. */
  close(): void {
    if (this.state === 'closed') return;
    this.stopAccepting();
    this.state = 'closed';
    this.push.stop();
    this.app.close();
  }

  setReadiness(readiness: Readiness): void {
    this.readiness = readiness;
  }

  setAdminTokens(tokens: readonly AdminToken[]): void {
    this.adminTokens = new AdminTokens(tokens);
  }

  /** Plain data, for whoever renders the metrics of all threads. */
  snapshot(): FrontSnapshot {
    return { ...this.metrics.snapshot(), push: this.push.snapshot() };
  }

  /** News of an actor, in order with its answers. */
  hear(actor: string, message: unknown): void {
    this.push.hear(actor, message);
  }

  private register(): void {
    const counted = (_res: HttpResponse, change: number): void => {
      this.metrics.connectionsChanged(change);
    };
    this.app.filter(counted as Parameters<TemplatedApp['filter']>[0]);
    const { services, options } = this;
    this.push.register(this.app);
    new DeviceAuthentication(
      services.devices,
      services.limiter,
      this.host,
      new TurnClock(services.clock),
      options.logAllowed === true,
    ).register(this.app);
    let document: unknown;
    const routes = new RouteServer({
      routes: ROUTES,
      host: this.host,
      context: {
        devices: services.devices,
        kills: services.kills,
        gateways: services.gateways,
        audit: services.audit,
        auditExport: services.auditExport,
        leader: services.leader,
        decisions: services.decisions,
        killList: () => this.push.killList(),
        limiter: services.limiter,
        verifyProof: (key, message, signature) => services.verifyProof(key, message, signature),
        status: () => services.status(),
        clock: services.clock,
        random: services.random,
        log: services.log,
        readiness: () => this.readiness,
        openApi: () => {
          document ??= openApiDocument(ROUTES, options.version);
          return document;
        },
      },
      adminTokens: () => this.adminTokens,
      hmacKey: Buffer.from(options.hmacKey),
    });
    this.app.get('/api/*', (res, req) => routes.serveLook(res, req));
    this.app.any('/*', (res, req) => routes.serve(res, req));
  }
}
