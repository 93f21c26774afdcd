/**
 * Runs wrk, where it is installed: it costs a fraction of autocannon's CPU time, so that on a small
 * machine the server is what saturates. One process for each replica, one thread each.
 */
import type { ChildProcess } from 'node:child_process';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { endChild, exitOf, spawnTracked } from './child-processes.js';
import {
  ANSWER_TIMEOUT_SECONDS,
  type ExpectedAnswer,
  type Generator,
  type LoadJob,
  type LoadResult,
  shareOf,
} from './generator.js';
import { endedChildrenCpuMs } from './process-usage.js';
import { LatencyHistogram } from './statistics.js';

/** wrk ends by itself after its duration; one that does not within this time more is killed. */
const JOB_GRACE_MS = 15_000;
/** The script is not compiled: it stands beside the sources, two folders above `dist/load`. */
const SCRIPT = fileURLToPath(new URL('../../load/wrk-device-auth.lua', import.meta.url));

/** What the script wrote: see the end of wrk-device-auth.lua. */
interface WrkOutcome {
  readonly answered: number;
  readonly elapsedMs: number;
  readonly errors: number;
  readonly wrong: number;
  readonly firstWrong: string;
}

export class WrkGenerator implements Generator {
  readonly name = 'wrk';
  private readonly running = new Set<ChildProcess>();

  /** `directory` takes the files that wrk reads and writes. */
  constructor(private readonly directory: string) {}

  static isInstalled(): boolean {
    // wrk has no option that succeeds without a target: `-v` prints its version and exits with 1.
    return spawnSync('wrk', ['-v'], { encoding: 'utf8' }).stdout?.startsWith('wrk ') ?? false;
  }

  async run(job: LoadJob): Promise<LoadResult> {
    if (job.ratePerSecond !== undefined) throw new Error('wrk cannot keep a rate.');
    const latency = new LatencyHistogram();
    const cpuBeforeMs = endedChildrenCpuMs();
    const outcomes = await Promise.all(
      job.urls.map((url, index) => this.runOne(job, url, index, latency)),
    );
    const sum = (pick: (outcome: WrkOutcome) => number): number =>
      outcomes.reduce((total, outcome) => total + pick(outcome), 0);
    return {
      answered: sum((outcome) => outcome.answered),
      elapsedMs: Math.max(...outcomes.map((outcome) => outcome.elapsedMs)),
      errors: sum((outcome) => outcome.errors),
      wrong: sum((outcome) => outcome.wrong),
      firstWrong: outcomes.find((outcome) => outcome.firstWrong !== '')?.firstWrong ?? '',
      latency: latency.samples(),
      generatorCpuMs: endedChildrenCpuMs() - cpuBeforeMs,
    };
  }

  async stop(): Promise<void> {
    await Promise.all([...this.running].map((child) => endChild(child, 0)));
  }

  private async runOne(
    job: LoadJob,
    url: string,
    index: number,
    latency: LatencyHistogram,
  ): Promise<WrkOutcome> {
    const replicas = job.urls.length;
    const connections = Math.floor((job.connections + replicas - 1 - index) / replicas);
    const answersFile = join(this.directory, `wrk-${index}.answers`);
    const resultFile = join(this.directory, `wrk-${index}.result`);
    writeFileSync(answersFile, asLines(shareOf(job.answers, index, replicas)), { mode: 0o600 });
    const args = [
      ...['--threads', '1', '--connections', String(connections)],
      // wrk takes whole seconds.
      ...['--duration', `${Math.max(1, Math.round(job.durationMs / 1000))}s`],
      ...['--timeout', `${ANSWER_TIMEOUT_SECONDS}s`, '--script', SCRIPT],
      ...[url + job.path, '--', answersFile],
    ];
    const child = spawnTracked('wrk', args, {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, LOAD_RESULT_FILE: resultFile },
    });
    this.running.add(child);
    const killer = setTimeout(() => child.kill('SIGKILL'), job.durationMs + JOB_GRACE_MS);
    const code = await exitOf(child);
    clearTimeout(killer);
    this.running.delete(child);
    if (code !== 0) throw new Error(`wrk ended with ${code}.`);
    return readOutcome(readFileSync(resultFile, 'utf8'), latency);
  }
}

function asLines(answers: readonly ExpectedAnswer[]): string {
  return answers
    .map(({ credential, device, user, body }) => `${[credential, device, user, body].join('\t')}\n`)
    .join('');
}

/** Reads what the script wrote, and records its latencies. */
export function readOutcome(text: string, latency: LatencyHistogram): WrkOutcome {
  const [totals = '', wrongLine = '', ...latencies] = text.trimEnd().split('\n');
  const [answered = 0, durationUs = 0, errors = 0, wrong = 0, maxUs = 0] = totals
    .split(' ')
    .slice(1)
    .map(Number);
  for (const line of latencies) {
    const [microseconds = 0, count = 0] = line.split(' ').map(Number);
    latency.record(microseconds, count);
  }
  latency.merge({ counts: [], maxUs });
  return {
    answered,
    elapsedMs: durationUs / 1000,
    errors,
    wrong,
    firstWrong: wrongLine.slice('wrong '.length).trim(),
  };
}
