/**
 * Decisions over two replicas: first at a steady rate, then as fast as they are answered. What was
 * answered must be in the chain afterwards, each exactly once, and the chain must verify.
 *
 * The figure to beat at saturation is Cerbos's own decision point on such a machine: 5,700
 * decisions/s at 323 µs of CPU each, with a log that is not durable.
 */
import { randomInt } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import pg from 'pg';
import { policyFiles } from '../../test/fixtures/policy-files.js';
import type { DecisionsJob, DecisionsResult } from '../decisions-process.js';
import { startOnPostgres } from '../halo-on-postgres.js';
import { runJob } from '../job-process.js';
import { ALL_KINDS, KindTally } from '../kind-tally.js';
import { nowMs } from '../open-loop.js';
import type { LoadOptions } from '../options.js';
import { HALOS, type LoadReport, reportOf, verdict } from '../report.js';
import type { RunContext } from '../run-context.js';

const WARM_UP_MS = 4_000;
const SATURATED_MS = 8_000;
const JOB_GRACE_MS = 30_000;
const SEED_MAX = 2 ** 31;
/** Cerbos's own, measured once on two cores: see the head of this file. */
const CERBOS_PER_SECOND = 5_700;
/** The lag after all of that has to be gone by then; a tick is two seconds. */
const CHAINED_WITHIN_MS = 10_000;

export async function runDecisions(options: LoadOptions, context: RunContext): Promise<LoadReport> {
  const policy = join(context.directory, 'policy');
  mkdirSync(policy);
  for (const { name, text } of policyFiles()) writeFileSync(join(policy, name), text);
  const args = ['--policy-dir', policy];
  const { servers, adminToken, databases } = await startOnPostgres(
    options,
    context,
    options.replicas,
    args,
  );
  const urls = servers.map(({ url }) => url);
  const gatewayToken = await newGateway(urls[0] ?? '', adminToken);
  const seed = randomInt(SEED_MAX);
  const job: DecisionsJob = {
    urls,
    gatewayToken,
    connections: options.connections,
    warmUpMs: WARM_UP_MS,
    durationMs: options.durationSeconds * 1000,
    seed,
  };
  const ratePerSecond = options.rate ?? 0;
  context.progress(`${ratePerSecond} decisions/s for ${options.durationSeconds} s, seed ${seed}`);
  const steady = await ask({ ...job, ratePerSecond });
  context.progress('as fast as they are answered');
  const cpuMs = (): number => servers.reduce((sum, server) => sum + server.usage().cpuMs, 0);
  const [serverBefore, databaseBefore] = [cpuMs(), databases.cpuMs()];
  const fast = await ask({ ...job, durationMs: SATURATED_MS });
  const [serverMs, databaseMs] = [cpuMs() - serverBefore, databases.cpuMs() - databaseBefore];
  const endedMs = nowMs();
  const url = readFileSync(join(context.directory, `${HALOS}.url`), 'utf8').trim();
  context.progress('looking for every answer in the chain');
  const chained = await inChain(url, [...steady.refs, ...fast.refs]);
  const rows = rowsOf(steady);
  const all = rows.find(({ kind }) => kind === ALL_KINDS);
  const fastRow = rowsOf(fast).find(({ kind }) => kind === ALL_KINDS);
  const perSecond = ((fastRow?.answered ?? 0) * 1000) / fast.elapsedMs;
  const wrong = steady.wrong + fast.wrong;
  if (wrong > 0) context.progress(`first wrong: ${steady.firstWrong || fast.firstWrong}`);
  return reportOf(options, context, databases, {
    kinds: rows,
    facts: {
      seed,
      generatorLateP99Ms: steady.lateP99Ms,
      saturatedPerSecond: perSecond,
      saturatedP50Ms: fastRow?.p50Ms ?? Number.NaN,
      saturatedP99Ms: fastRow?.p99Ms ?? Number.NaN,
      serverCpuUs: (serverMs * 1000) / fast.refs.length,
      databaseCpuUs: (databaseMs * 1000) / fast.refs.length,
      generatorCpuUs: (fast.generatorCpuMs * 1000) / fast.refs.length,
      chainedAfterMs: chained.atMs - endedMs,
    },
    verdicts: [
      verdict('answers', all?.answered ?? 0, ['at least', 1, ''], true),
      verdict('wrong answers', wrong, ['at most', 0, ''], true),
      verdict('broken or unanswered', steady.broken, ['at most', 0, ''], true),
      verdict('broken or unanswered when saturated', fast.broken, ['at most', 0, ''], true),
      verdict('answers that are not in the chain', chained.missing, ['at most', 0, ''], true),
      verdict('p95 at a steady rate', all?.p95Ms ?? Number.NaN, ['below', 50, ' ms'], true),
      verdict('p95, aimed for', all?.p95Ms ?? Number.NaN, ['below', 10, ' ms']),
      verdict('p99 at a steady rate', all?.p99Ms ?? Number.NaN, ['below', 100, ' ms']),
      verdict('saturated', perSecond, ['at least', CERBOS_PER_SECOND, '/s']),
    ],
  });
}

function ask(job: DecisionsJob): Promise<DecisionsResult> {
  return runJob<DecisionsJob, DecisionsResult>({
    script: './decisions-process.js',
    job,
    withinMs: job.warmUpMs + job.durationMs + JOB_GRACE_MS,
  });
}

function rowsOf({ kinds }: DecisionsResult): ReturnType<KindTally['rows']> {
  const tally = new KindTally();
  tally.merge(kinds);
  return tally.rows();
}

async function newGateway(url: string, adminToken: string): Promise<string> {
  const answer = await fetch(`${url}/api/v1/gateways`, {
    method: 'POST',
    headers: { authorization: `Bearer ${adminToken}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'load' }),
  });
  const { token } = (await answer.json()) as { token?: string };
  if (token === undefined) throw new Error(`No gateway was made: ${answer.status}.`);
  return token;
}

/** Waits until nothing waits for its place, and counts the refs that are not in the chain. */
async function inChain(
  url: string,
  refs: readonly string[],
): Promise<{ readonly missing: number; readonly atMs: number }> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const untilMs = nowMs() + CHAINED_WITHIN_MS;
    for (;;) {
      const { rows } = await client.query('SELECT 1 FROM halo_evidence_outbox LIMIT 1');
      if (rows.length === 0 || nowMs() > untilMs) break;
      await wait(20);
    }
    const atMs = nowMs();
    const { rows } = await client.query<{ found: string }>(
      'SELECT count(*) AS found FROM halo_audit WHERE ref = ANY($1)',
      [refs],
    );
    return { missing: refs.length - Number(rows[0]?.found ?? 0), atMs };
  } finally {
    await client.end();
  }
}
