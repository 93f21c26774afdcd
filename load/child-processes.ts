/** Every process that a load run starts, so that none outlives it, however the run ends. */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';

const running = new Set<ChildProcess>();
let guarded = false;

/** Spawns a child that is killed, by its pid, when this process ends, in whatever way. */
export function spawnTracked(
  command: string,
  args: readonly string[],
  options: SpawnOptions,
): ChildProcess {
  guardExit();
  const child = spawn(command, args, options);
  const watchdog = child.pid === undefined ? undefined : startWatchdog(child.pid);
  running.add(child);
  const forget = (): void => {
    running.delete(child);
    watchdog?.kill('SIGKILL');
  };
  child.once('exit', forget);
  child.once('error', forget);
  return child;
}

/**
 * A shell that waits for the end of its input, which comes when this process ends even by SIGKILL,
 * and then kills the child. It is killed itself as soon as the child has ended.
 */
function startWatchdog(pid: number): ChildProcess {
  const watchdog = spawn('/bin/sh', ['-c', 'read -r line; kill -KILL "$1"', 'sh', String(pid)], {
    stdio: ['pipe', 'ignore', 'ignore'],
    // A signal to the terminal's group is for the run, which ends its children itself.
    detached: true,
  });
  watchdog.unref();
  return watchdog;
}

/** Resolves when the child has ended: its exit code, or 128 and more for a signal. */
export function exitOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve) => {
    if (child.exitCode !== null) resolve(child.exitCode);
    else if (child.signalCode !== null) resolve(EXIT_SIGNALLED);
    else {
      child.once('exit', (code) => resolve(code ?? EXIT_SIGNALLED));
      child.once('error', () => resolve(EXIT_SIGNALLED));
    }
  });
}

/** What a shell would say of a process that a signal ended, without naming the signal. */
export const EXIT_SIGNALLED = 128;

/**
 * Asks the child to end by SIGTERM, kills it after `graceMs`, and returns its exit code: one that
 * had to be killed says `EXIT_SIGNALLED`.
 */
export async function endChild(child: ChildProcess, graceMs: number): Promise<number> {
  const exit = exitOf(child);
  child.kill('SIGTERM');
  const killer = setTimeout(() => child.kill('SIGKILL'), graceMs);
  const code = await exit;
  clearTimeout(killer);
  return code;
}

function guardExit(): void {
  if (guarded) return;
  guarded = true;
  process.on('exit', () => {
    for (const child of running) child.kill('SIGKILL');
  });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => process.exit(EXIT_SIGNALLED + 2));
  }
}
