/** What a profile is given to work with, and how a run is cleaned up and kept bounded. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Generator } from './generator.js';
import { AutocannonGenerator } from './generator-autocannon.js';
import { WrkGenerator } from './generator-wrk.js';
import type { LoadOptions } from './options.js';

export interface RunContext {
  /** For every file of the run; removed at its end. */
  readonly directory: string;
  readonly generator: Generator;
  readonly startedAt: string;
  /** A line for people, on stderr. */
  readonly progress: (line: string) => void;
  /** Runs at the end of the run, whatever happened, last registered first. */
  readonly onEnd: (stop: () => Promise<void>) => void;
}

/**
 * What a run may take beyond the time that it measures: starting, enrolling, seeding a million
 * devices, checking and stopping, on a machine that others use too.
 */
const RUN_OVERHEAD_MAX_MS = 600_000;
/** Servers that are measured in one run, at most. */
const TARGETS_MAX = 4;

/**
 * Gives `profile` a context and ends everything that it started. A run that passes its bound ends
 * the process, and with it, by their pids, all children.
 */
export async function withRunContext<Result>(
  options: LoadOptions,
  profile: (context: RunContext) => Promise<Result>,
): Promise<Result> {
  if (options.generator === 'wrk' && !WrkGenerator.isInstalled()) {
    throw new Error('wrk is not installed; leave out --generator wrk to use autocannon.');
  }
  const boundMs = TARGETS_MAX * options.durationSeconds * 1000 + RUN_OVERHEAD_MAX_MS;
  const bound = setTimeout(() => {
    process.stderr.write(`The run did not end within ${boundMs / 1000} s.\n`);
    process.exit(1);
  }, boundMs);
  const directory = mkdtempSync(join(tmpdir(), 'halos-load-'));
  const removeDirectory = (): void => rmSync(directory, { recursive: true, force: true });
  process.once('exit', removeDirectory);
  const generator =
    options.generator === 'wrk' ? new WrkGenerator(directory) : new AutocannonGenerator();
  const ends: (() => Promise<void>)[] = [() => generator.stop()];
  const errors: unknown[] = [];
  let result: Result | undefined;
  try {
    result = await profile({
      directory,
      generator,
      startedAt: new Date().toISOString(),
      progress: (line) => process.stderr.write(`load: ${line}\n`),
      onEnd: (stop) => ends.push(stop),
    });
  } catch (error) {
    errors.push(error);
  }
  for (const end of ends.reverse()) await end().catch((error: unknown) => errors.push(error));
  clearTimeout(bound);
  removeDirectory();
  process.off('exit', removeDirectory);
  if (errors.length > 0 || result === undefined) throw new AggregateError(errors, messages(errors));
  return result;
}

function messages(errors: readonly unknown[]): string {
  return errors.map((error) => (error instanceof Error ? error.message : String(error))).join('\n');
}
