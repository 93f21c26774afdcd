/**
 * The process that sends `device-auth-churn`: an open loop over all replicas in which devices are
 * enrolled and revoked while others authenticate. What one replica has answered, the next requests
 * hold the others to.
 */
import { ChurnFleet, type FleetDevice, faultOf } from './churn-fleet.js';
import { DEVICE_AUTH_PATH, type LoadDevice } from './devices.js';
import { type HttpAnswer, HttpConnections } from './http-connections.js';
import { serveJobs } from './job-process.js';
import { type KindSamples, KindTally } from './kind-tally.js';
import { allAnswered, nowMs, OpenLoop } from './open-loop.js';
import { seededFractions } from './statistics.js';

export interface ChurnJob {
  readonly urls: readonly string[];
  readonly adminToken: string;
  readonly devices: readonly LoadDevice[];
  readonly ratePerSecond: number;
  /** Sent and checked before anything is counted. */
  readonly warmUpMs: number;
  readonly durationMs: number;
  readonly seed: number;
}

export interface ChurnResult {
  readonly kinds: KindSamples;
  readonly sent: number;
  readonly wrong: number;
  readonly firstWrong: string;
  /** 503 of any code: nobody is let in wrongly, but somebody is kept out. */
  readonly unavailable: number;
  readonly firstUnavailable: string;
  /** Connections that broke, and requests without an answer. */
  readonly broken: number;
  readonly lateP99Ms: number;
  readonly generatorCpuMs: number;
  readonly elapsedMs: number;
  readonly live: readonly LoadDevice[];
  readonly revoked: readonly LoadDevice[];
}

/** What of all requests are enrolments, revocations and guesses (issue 3). */
const ENROLMENTS = 0.01;
const REVOCATIONS = 0.01;
const GUESSES = 0.001;
/** Answers of 50 ms at 5,000 requests/s need 250 connections; a stall needs them all. */
const CONNECTIONS_PER_REPLICA = 256;

class Churn {
  readonly fleet: ChurnFleet;
  readonly loop: OpenLoop;
  tally = new KindTally();
  sent = 0;
  wrong = 0;
  firstWrong = '';
  unavailable = 0;
  firstUnavailable = '';
  broken = 0;
  out = 0;
  private readonly replicas: HttpConnections[];
  private readonly fraction: () => number;
  private serial = 0;

  constructor(private readonly job: ChurnJob) {
    this.fleet = new ChurnFleet(job.devices, job.urls.length);
    this.fraction = seededFractions(job.seed);
    this.replicas = job.urls.map(
      (url) => new HttpConnections(new URL(url), CONNECTIONS_PER_REPLICA),
    );
    this.loop = new OpenLoop(job.ratePerSecond, (dueMs) => this.next(dueMs));
  }

  async open(): Promise<void> {
    await Promise.all(this.replicas.map((replica) => replica.fill()));
  }

  stop(): void {
    for (const replica of this.replicas) replica.stop();
  }

  private next(dueMs: number): void {
    const draw = this.fraction();
    const replica = Math.floor(this.fraction() * this.replicas.length);
    if (draw < ENROLMENTS) this.mint(replica, dueMs);
    else if (draw < ENROLMENTS + REVOCATIONS) this.revoke(replica, dueMs);
    else if (draw < ENROLMENTS + REVOCATIONS + GUESSES) this.guess(replica, dueMs);
    else this.authenticateAny(replica, dueMs);
  }

  private authenticateAny(replica: number, dueMs: number): void {
    const owed = this.fleet.nextOwed();
    if (owed !== undefined) {
      const isRevoked = owed.known.standing === 'revoked';
      const kind = isRevoked ? 'authenticate, just revoked' : 'authenticate, just enrolled';
      this.authenticate(kind, owed.known, owed.replica, dueMs);
      return;
    }
    const known = this.fleet.pick(this.fraction());
    if (known !== undefined) this.authenticate('authenticate', known, replica, dueMs);
  }

  private authenticate(kind: string, known: FleetDevice, replica: number, dueMs: number): void {
    let sentAs = known.standing;
    const text = (): string => {
      sentAs = known.standing;
      return authentication(known.device.credential, '192.0.2.1');
    };
    this.send(kind, replica, dueMs, text, (answer) => faultOf(known, sentAs, answer));
  }

  /** An unknown credential, each from an address of its own: the limiter counts by address. */
  private guess(replica: number, dueMs: number): void {
    this.serial += 1;
    const { serial } = this;
    const address = `10.${(serial >> 16) & 255}.${(serial >> 8) & 255}.${serial & 255}`;
    const guessed = `halo_device_${String(serial).padStart(49, '0')}`;
    this.send(
      'guess',
      replica,
      dueMs,
      () => authentication(guessed, address),
      ({ status, body }) =>
        status === 401 && body.includes('"code":"device_unknown"') ? '' : `A guess got ${status}`,
    );
  }

  private revoke(replica: number, dueMs: number): void {
    const known = this.fleet.pick(this.fraction());
    if (known === undefined) return;
    this.fleet.revoking(known);
    const path = `/api/v1/devices/${known.device.id}/revoke`;
    const text = (): string => this.post(path, { reason: 'load run' }, this.job.adminToken);
    this.send('revoke', replica, dueMs, text, ({ status, body }) => {
      if (status !== 200) return `A revocation got ${status} ${body}`;
      this.fleet.wasRevoked(known);
      return '';
    });
  }

  private mint(replica: number, dueMs: number): void {
    this.serial += 1;
    const user = `churn-user-${this.serial}@example.com`;
    const text = (): string =>
      this.post('/api/v1/enrollment-tokens', { user }, this.job.adminToken);
    this.send('mint a token', replica, dueMs, text, ({ status, body }) => {
      if (status !== 201) return `Minting a token got ${status} ${body}`;
      const { token } = JSON.parse(body) as { token: string };
      // A token that was minted here has to be good anywhere.
      this.enrol(Math.floor(this.fraction() * this.replicas.length), user, token);
      return '';
    });
  }

  private enrol(replica: number, user: string, token: string): void {
    const device = { token, name: `churn ${user}`, platform: 'linux' };
    const text = (): string => this.post('/api/v1/enroll', device);
    this.send('enrol', replica, nowMs(), text, ({ status, body }) => {
      if (status !== 201) return `An enrolment got ${status} ${body}`;
      const enrolled = JSON.parse(body) as {
        device: { id: string; user: string };
        credential: string;
      };
      const { id } = enrolled.device;
      if (enrolled.device.user !== user) return `An enrolment of ${user} got ${body}`;
      this.fleet.wasEnrolled({ id, user, credential: enrolled.credential }, replica);
      return '';
    });
  }

  private send(
    kind: string,
    replica: number,
    dueMs: number,
    text: () => string,
    judge: (answer: HttpAnswer) => string,
  ): void {
    this.sent += 1;
    this.out += 1;
    const { tally } = this;
    this.replicas[replica]?.send({
      text,
      answered: (answer) => {
        this.out -= 1;
        tally.record(kind, nowMs() - dueMs);
        this.judged(kind, answer, judge);
        this.loop.sendDue();
      },
    });
  }

  private judged(kind: string, answer: HttpAnswer, judge: (answer: HttpAnswer) => string): void {
    if (answer.status === 0) this.broken += 1;
    else if (answer.status === 503) {
      this.unavailable += 1;
      if (this.firstUnavailable === '') this.firstUnavailable = `${kind}: ${answer.body}`;
    } else {
      const fault = judge(answer);
      if (fault === '') return;
      this.wrong += 1;
      if (this.firstWrong === '') this.firstWrong = `${kind}: ${fault}`;
    }
  }

  private post(path: string, body: object, token?: string): string {
    const json = JSON.stringify(body);
    const authorization = token === undefined ? '' : `authorization: Bearer ${token}\r\n`;
    return (
      `POST ${path} HTTP/1.1\r\nhost: load\r\n${authorization}content-type: application/json\r\n` +
      `content-length: ${json.length}\r\nx-forwarded-for: 192.0.2.2\r\n\r\n${json}`
    );
  }
}

function authentication(credential: string, address: string): string {
  return (
    `GET ${DEVICE_AUTH_PATH} HTTP/1.1\r\nhost: load\r\nauthorization: Bearer ${credential}\r\n` +
    `x-forwarded-for: ${address}\r\n\r\n`
  );
}

async function run(job: ChurnJob): Promise<ChurnResult> {
  const churn = new Churn(job);
  await churn.open();
  await churn.loop.run(job.warmUpMs);
  await allAnswered(() => churn.out);
  churn.tally = new KindTally();
  churn.loop.late.clear();
  const cpuBefore = process.cpuUsage();
  const startedMs = nowMs();
  await churn.loop.run(job.durationMs);
  await allAnswered(() => churn.out);
  const cpu = process.cpuUsage(cpuBefore);
  const elapsedMs = nowMs() - startedMs;
  churn.stop();
  const { sent, wrong, firstWrong, unavailable, firstUnavailable, fleet } = churn;
  return {
    kinds: churn.tally.samples(),
    sent,
    wrong,
    firstWrong,
    unavailable,
    firstUnavailable,
    broken: churn.broken + churn.out,
    lateP99Ms: churn.loop.late.percentile(99) / 1000,
    generatorCpuMs: (cpu.user + cpu.system) / 1000,
    elapsedMs,
    live: fleet.liveDevices,
    revoked: fleet.revoked,
  };
}

serveJobs(run);
