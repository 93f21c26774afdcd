/**
 * A process that offers a server a mix of requests: as fast as it answers over few connections, to
 * see what it can serve, or at a rate that it cannot, over many. An answer is accepted, refused
 * with 503 `overloaded`, or wrong.
 */
import { DEVICE_AUTH_PATH, type LoadDevice } from './devices.js';
import { type HttpAnswer, HttpConnections } from './http-connections.js';
import { serveJobs } from './job-process.js';
import { type KindSamples, KindTally } from './kind-tally.js';
import { allAnswered, nowMs, OpenLoop } from './open-loop.js';
import { seededFractions } from './statistics.js';

export interface OverloadJob {
  readonly url: string;
  readonly adminToken: string;
  readonly devices: readonly LoadDevice[];
  readonly connections: number;
  readonly durationMs: number;
  /** Absent: each connection asks again as soon as it is answered. */
  readonly ratePerSecond?: number;
  readonly seed: number;
}

export interface OverloadResult {
  /** By `authenticate` and `look up`, and the same with `, refused`. */
  readonly kinds: KindSamples;
  readonly accepted: number;
  readonly refused: number;
  readonly wrong: number;
  readonly firstWrong: string;
  readonly broken: number;
  readonly lateP99Ms: number;
  /** Requests that waited for a connection at the end: the generator's connections were too few. */
  readonly inLine: number;
  readonly generatorCpuMs: number;
  readonly elapsedMs: number;
}

/**
 * What a request costs the server has to be well above what sending it costs this process, or two
 * cores cannot offer twice what one of them serves. Looking a device up, as an operator's tools do,
 * costs it several authentications.
 */
const LOOK_UPS = 0.75;

class Overload {
  readonly tally = new KindTally();
  readonly loop: OpenLoop;
  readonly connections: HttpConnections;
  accepted = 0;
  refused = 0;
  wrong = 0;
  firstWrong = '';
  broken = 0;
  out = 0;
  private readonly fraction: () => number;
  private closedUntilMs = 0;

  constructor(private readonly job: OverloadJob) {
    this.fraction = seededFractions(job.seed);
    this.connections = new HttpConnections(new URL(job.url), job.connections);
    this.loop = new OpenLoop(job.ratePerSecond ?? 0, (dueMs) => this.send(dueMs));
  }

  async run(): Promise<void> {
    await this.connections.fill();
    if (this.job.ratePerSecond !== undefined) {
      await this.loop.run(this.job.durationMs);
      return;
    }
    this.closedUntilMs = nowMs() + this.job.durationMs;
    for (let connection = 0; connection < this.job.connections; connection += 1) this.send(nowMs());
    await allAnswered(() => (nowMs() < this.closedUntilMs ? 1 : 0));
  }

  private send(dueMs: number): void {
    const { devices } = this.job;
    const device = devices[Math.floor(this.fraction() * devices.length)];
    if (device === undefined) return;
    const looksUp = this.fraction() < LOOK_UPS;
    const kind = looksUp ? 'look up' : 'authenticate';
    this.out += 1;
    this.connections.send({
      text: () => this.text(device, looksUp),
      answered: (answer) => {
        this.out -= 1;
        this.judge(kind, answer, device, nowMs() - dueMs);
        if (this.job.ratePerSecond !== undefined) this.loop.sendDue();
        else if (nowMs() < this.closedUntilMs) this.send(nowMs());
      },
    });
  }

  private text({ id, credential }: LoadDevice, looksUp: boolean): string {
    const path = looksUp ? `/api/v1/devices/${id}` : DEVICE_AUTH_PATH;
    const token = looksUp ? this.job.adminToken : credential;
    return `GET ${path} HTTP/1.1\r\nhost: load\r\nauthorization: Bearer ${token}\r\n\r\n`;
  }

  private judge(kind: string, answer: HttpAnswer, device: LoadDevice, latencyMs: number): void {
    const { status, body } = answer;
    if (status === 200 && body.includes(`"id":"${device.id}"`)) {
      this.accepted += 1;
      this.tally.record(kind, latencyMs);
    } else if (status === 503 && body.includes('"code":"overloaded"')) {
      this.refused += 1;
      this.tally.record(`${kind}, refused`, latencyMs);
    } else if (status === 0) this.broken += 1;
    else {
      this.wrong += 1;
      if (this.firstWrong === '') this.firstWrong = `${kind}: ${status} ${body}`;
    }
  }
}

async function run(job: OverloadJob): Promise<OverloadResult> {
  const overload = new Overload(job);
  const cpuBefore = process.cpuUsage();
  const startedMs = nowMs();
  await overload.run();
  const elapsedMs = nowMs() - startedMs;
  const { inLine } = overload.connections;
  await allAnswered(() => overload.out);
  const cpu = process.cpuUsage(cpuBefore);
  overload.connections.stop();
  const { accepted, refused, wrong, firstWrong, broken, out, tally, loop } = overload;
  return {
    kinds: tally.samples(),
    accepted,
    refused,
    wrong,
    firstWrong,
    broken: broken + out,
    lateP99Ms: loop.late.percentile(99) / 1000,
    inLine,
    generatorCpuMs: (cpu.user + cpu.system) / 1000,
    elapsedMs,
  };
}

serveJobs(run);
