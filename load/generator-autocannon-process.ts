/**
 * The process that autocannon runs in, so that neither the measuring process nor a server shares
 * its event loop. Takes one `LoadJob` per message from its parent and answers each with a
 * `LoadResult`.
 *
 * Every answer is checked against the request it belongs to: status, both headers, whole body.
 * Only documented hooks of autocannon are used; there is no pipelining, so that a connection's
 * answer always belongs to its last request.
 */
import autocannon from 'autocannon';
import {
  ANSWER_TIMEOUT_SECONDS,
  type ExpectedAnswer,
  type LoadJob,
  type LoadResult,
  shareOf,
} from './generator.js';
import { LatencyHistogram } from './statistics.js';

/** How often autocannon looks whether the duration is over. */
const SAMPLE_INTERVAL_MS = 50;

/** What the 'headers' event brings: names and values in turn. */
interface RawAnswerHead {
  readonly statusCode: number;
  readonly headers: readonly string[];
}

class Tally {
  readonly latency = new LatencyHistogram();
  answered = 0;
  requested = 0;
  wrong = 0;
  firstWrong = '';
  /** The answer that the body verified next must equal: set just before autocannon asks. */
  private expectedBody = '';

  constructor(private readonly expectedIntervalUs: number) {}

  /** Follows one connection: which request is out, and whether its answer's head was right. */
  follow(client: autocannon.Client, answers: readonly ExpectedAnswer[]): void {
    let next = 0;
    let current: ExpectedAnswer | undefined;
    client.on('request' as 'headers', () => {
      current = answers[next];
      next = (next + 1) % answers.length;
      this.requested += 1;
    });
    client.on('headers', (head) => {
      const { statusCode, headers } = head as unknown as RawAnswerHead;
      if (current !== undefined) this.checkHead(current, statusCode, headers);
    });
    client.on('response', (_status, _bytes, latencyMs) => {
      this.answered += 1;
      this.latency.recordCorrected(latencyMs * 1000, this.expectedIntervalUs);
      this.expectedBody = current?.body ?? '';
    });
  }

  checkBody(body: unknown): boolean {
    if (body === this.expectedBody) return true;
    this.miss(`body ${JSON.stringify(body)} instead of ${this.expectedBody}`);
    return false;
  }

  private checkHead(expected: ExpectedAnswer, status: number, headers: readonly string[]): void {
    let device = '';
    let user = '';
    for (let index = 0; index < headers.length; index += 2) {
      const name = headers[index];
      if (name === 'x-halo-device') device = headers[index + 1] ?? '';
      else if (name === 'x-halo-user') user = headers[index + 1] ?? '';
    }
    if (status === 200 && device === expected.device && user === expected.user) return;
    this.miss(`status ${status}, device "${device}", user "${user}" for ${expected.body}`);
  }

  private miss(what: string): void {
    this.wrong += 1;
    if (this.firstWrong === '') this.firstWrong = what;
  }
}

async function runJob(job: LoadJob): Promise<LoadResult> {
  // A connection's share of the rate is sent as fast as it is answered, from each full second on
  // (autocannon's way); the correction counts what a steady sender would have seen meanwhile.
  const tally = new Tally(
    job.ratePerSecond === undefined ? 0 : (job.connections * 1e6) / job.ratePerSecond,
  );
  let clients = 0;
  const cpuBefore = process.cpuUsage();
  const startedAt = process.hrtime.bigint();
  const result = await autocannon({
    url: job.urls.map((url) => url + job.path) as unknown as string,
    connections: job.connections,
    duration: job.durationMs / 1000,
    sampleInt: SAMPLE_INTERVAL_MS,
    timeout: ANSWER_TIMEOUT_SECONDS,
    pipelining: 1,
    ...(job.ratePerSecond === undefined
      ? {}
      : { overallRate: job.ratePerSecond, ignoreCoordinatedOmission: true }),
    setupClient: (client) => {
      const answers = shareOf(job.answers, clients, job.connections);
      clients += 1;
      client.setRequests(
        answers.map(({ credential }) => ({ headers: { authorization: `Bearer ${credential}` } })),
      );
      tally.follow(client, answers);
    },
    verifyBody: (body) => tally.checkBody(body),
  });
  const elapsedMs = Number(process.hrtime.bigint() - startedAt) / 1e6;
  const cpu = process.cpuUsage(cpuBefore);
  // At the end one request of each connection may still be out; more were lost without an error.
  const lost = Math.max(0, tally.requested - tally.answered - clients);
  return {
    answered: tally.answered,
    elapsedMs,
    errors: Math.max(result.errors, lost),
    wrong: tally.wrong,
    firstWrong: tally.firstWrong,
    latency: tally.latency.samples(),
    generatorCpuMs: (cpu.user + cpu.system) / 1000,
  };
}

process.on('message', (job) => {
  runJob(job as LoadJob).then(
    (result) => process.send?.({ result }),
    (error: unknown) => process.send?.({ error: String(error) }),
  );
});
