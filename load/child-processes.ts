/** Every process that a load run starts, so that none outlives it, however the run ends. */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';

const running = new Set<ChildProcess>();
let guarded = false;

/** Spawns a child that is killed, by its pid, when this process exits. */
export function spawnTracked(
  command: string,
  args: readonly string[],
  options: SpawnOptions,
): ChildProcess {
  guardExit();
  const child = spawn(command, args, options);
  running.add(child);
  child.once('exit', () => running.delete(child));
  child.once('error', () => running.delete(child));
  return child;
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
