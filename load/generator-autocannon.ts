/** Runs autocannon in a process of its own, one job after the other. */
import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { endChild, spawnTracked } from './child-processes.js';
import type { Generator, LoadJob, LoadResult } from './generator.js';

/** A job that lasts this much longer than asked for hangs. */
const JOB_GRACE_MS = 15_000;
/** The process ends at once when asked to; the bound is for a machine that is busy. */
const STOP_GRACE_MS = 2_000;

export class AutocannonGenerator implements Generator {
  readonly name = 'autocannon';
  private readonly child: ChildProcess;

  constructor() {
    const script = fileURLToPath(new URL('./generator-autocannon-process.js', import.meta.url));
    this.child = spawnTracked(process.execPath, [script], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
  }

  run(job: LoadJob): Promise<LoadResult> {
    const { child } = this;
    return new Promise((resolve, reject) => {
      const settle = (act: () => void): void => {
        clearTimeout(timer);
        child.off('message', onMessage);
        child.off('exit', onExit);
        act();
      };
      const onMessage = (message: unknown): void => {
        const { result, error } = message as { result?: LoadResult; error?: string };
        settle(() =>
          result === undefined ? reject(new Error(`autocannon failed: ${error}`)) : resolve(result),
        );
      };
      const onExit = (): void => settle(() => reject(new Error('The autocannon process ended.')));
      const timer = setTimeout(
        () => settle(() => reject(new Error('autocannon did not end in time.'))),
        job.durationMs + JOB_GRACE_MS,
      );
      child.once('message', onMessage);
      child.once('exit', onExit);
      child.send(job);
    });
  }

  async stop(): Promise<void> {
    await endChild(this.child, STOP_GRACE_MS);
  }
}
