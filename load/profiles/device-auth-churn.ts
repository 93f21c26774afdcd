/**
 * A working day of a fleet, at a steady rate over two replicas: most requests authenticate, some
 * enrol and revoke devices, a few guess. Whatever one replica has answered, the others must know at
 * once: one wrong answer fails the run.
 */
import { randomInt } from 'node:crypto';
import type { ChurnJob, ChurnResult } from '../churn-process.js';
import { checkedAnswers, checkRefusals, enrolDevices, type LoadDevice } from '../devices.js';
import { startOnPostgres } from '../halo-on-postgres.js';
import { runJob } from '../job-process.js';
import { ALL_KINDS, KindTally } from '../kind-tally.js';
import type { LoadOptions } from '../options.js';
import { type LoadReport, reportOf, type Verdict, verdict } from '../report.js';
import type { RunContext } from '../run-context.js';

/** Long enough for the JIT compilers of two servers to settle at that rate. */
const WARM_UP_MS = 3_000;
/** What a generator may take beyond what it sends: connecting, and waiting for the last answers. */
const JOB_GRACE_MS = 30_000;
const SEED_MAX = 2 ** 31;

export async function runDeviceAuthChurn(
  options: LoadOptions,
  context: RunContext,
): Promise<LoadReport> {
  const { servers, adminToken, databases } = await startOnPostgres(
    options,
    context,
    options.replicas,
    // The generator plays a proxy, so that its guesses come from addresses of their own.
    ['--trusted-proxies', '127.0.0.1/32'],
  );
  const urls = servers.map(({ url }) => url);
  context.progress(`enrolling ${options.devices} devices`);
  const devices = await enrolDevices(urls[0] ?? '', adminToken, options.devices);
  const seed = randomInt(SEED_MAX);
  const ratePerSecond = options.rate ?? 0;
  const durationMs = options.durationSeconds * 1000;
  context.progress(`${ratePerSecond} requests/s for ${options.durationSeconds} s, seed ${seed}`);
  const cpuMs = (): number => servers.reduce((sum, server) => sum + server.usage().cpuMs, 0);
  const [serverBefore, databaseBefore] = [cpuMs(), databases.cpuMs()];
  const result = await runJob<ChurnJob, ChurnResult>({
    script: './churn-process.js',
    job: { urls, adminToken, devices, ratePerSecond, warmUpMs: WARM_UP_MS, durationMs, seed },
    withinMs: WARM_UP_MS + durationMs + JOB_GRACE_MS,
  });
  const [serverMs, databaseMs] = [cpuMs() - serverBefore, databases.cpuMs() - databaseBefore];
  context.progress('asking every replica for every device once more');
  for (const url of urls) await checkAll(url, result);
  if (result.firstWrong !== '') context.progress(`first wrong answer: ${result.firstWrong}`);
  if (result.firstUnavailable !== '') context.progress(`first 503: ${result.firstUnavailable}`);
  const tally = new KindTally();
  tally.merge(result.kinds);
  const kinds = tally.rows();
  const all = kinds.find(({ kind }) => kind === ALL_KINDS);
  const verdicts = churnVerdicts(result, all?.p95Ms ?? Number.NaN, all?.p99Ms ?? Number.NaN);
  return reportOf(options, context, databases, {
    kinds,
    facts: {
      seed,
      sent: result.sent,
      sentPerSecond: ((all?.answered ?? 0) * 1000) / result.elapsedMs,
      generatorLateP99Ms: result.lateP99Ms,
      generatorCores: result.generatorCpuMs / result.elapsedMs,
      serverCpuUs: (serverMs * 1000) / result.sent,
      databaseCpuUs: (databaseMs * 1000) / result.sent,
    },
    verdicts,
  });
}

/** Throws when a replica lets in who was revoked, or keeps out who was not. */
async function checkAll(url: string, { live, revoked }: ChurnResult): Promise<void> {
  await checkedAnswers(url, live);
  await checkRefusals(
    url,
    revoked.map(({ credential }: LoadDevice) => ({
      what: 'revoked during the run',
      credential,
      status: 403,
      code: 'device_revoked',
      isGuess: false,
    })),
  );
}

function churnVerdicts(result: ChurnResult, p95Ms: number, p99Ms: number): Verdict[] {
  return [
    verdict('answers', result.sent, ['at least', 1, ''], true),
    verdict('wrong answers', result.wrong, ['at most', 0, ''], true),
    verdict('answers 503', result.unavailable, ['at most', 0, ''], true),
    verdict('broken or unanswered', result.broken, ['at most', 0, ''], true),
    verdict('p95 of all requests', p95Ms, ['below', 10, ' ms']),
    verdict('p99 of all requests', p99Ms, ['below', 50, ' ms']),
  ];
}
