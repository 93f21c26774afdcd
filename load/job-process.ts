/** A generator as a process of its own: it is given one job, and answers with one result. */
import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { endChild, spawnTracked } from './child-processes.js';

/** A process that has answered has nothing to lose. */
const STOP_GRACE_MS = 2_000;

/** What a generator's process is started with. */
export interface JobSpec<Job> {
  /** Beside this file, as it is called once compiled. */
  readonly script: string;
  readonly job: Job;
  readonly withinMs: number;
  /** Cores that it may run on, as `taskset` takes them; absent: all. */
  readonly cores?: string;
}

/** Runs the job and ends the process. Rejects with what it failed with, or when it takes longer. */
export async function runJob<Job, Result>(spec: JobSpec<Job>): Promise<Result> {
  const script = fileURLToPath(new URL(spec.script, import.meta.url));
  const [command, ...args] = [
    ...(spec.cores === undefined ? [] : ['taskset', '--cpu-list', spec.cores]),
    ...[process.execPath, script],
  ];
  const child = spawnTracked(command ?? '', args, {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  try {
    return await answerOf<Result>(child, spec.job, spec.withinMs);
  } finally {
    await endChild(child, STOP_GRACE_MS);
  }
}

function answerOf<Result>(child: ChildProcess, job: unknown, withinMs: number): Promise<Result> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`A generator did not end within ${withinMs} ms.`)),
      withinMs,
    );
    child.once('error', reject);
    child.once('exit', () => reject(new Error('A generator ended without a result.')));
    child.once('message', (message: { result?: Result; error?: string }) => {
      clearTimeout(timer);
      if (message.result === undefined) reject(new Error(`A generator failed: ${message.error}`));
      else resolve(message.result);
    });
    child.send(job as object);
  });
}

/** The process's side: answers each job that it is sent. */
export function serveJobs<Job, Result>(run: (job: Job) => Promise<Result>): void {
  process.on('message', (job) => {
    run(job as Job).then(
      (result) => process.send?.({ result }),
      (error: unknown) => process.send?.({ error: String(error) }),
    );
  });
}
