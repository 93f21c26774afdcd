/**
 * A server under test as a process of its own: started, waited for until it says that it is ready,
 * measured from outside, ended by SIGTERM.
 */
import type { ChildProcess } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { endChild, exitOf, spawnTracked } from './child-processes.js';
import { type ProcessUsage, usageOf } from './process-usage.js';

export interface ServerSpec {
  /** Names its files in the run's directory and its row in the report. */
  readonly name: string;
  /** The program and its arguments; `--ready-file FILE` is added. */
  readonly script: string;
  readonly args: readonly string[];
  readonly directory: string;
  readonly readyWithinMs: number;
}

/** What `--ready-file` holds (API.md "Commands"). */
interface Ready {
  readonly pid: number;
  readonly url: string;
  readonly metricsUrl?: string;
}

/** How often the ready file is looked for: the precision of a start-up time. */
const READY_POLL_MS = 5;
/** Longer than the server's default `--shutdown-grace` of 10 s. */
const STOP_GRACE_MS = 15_000;
/** Lines of a dead server's output that are worth printing. */
const LOG_TAIL_LINES = 20;

export class ServerProcess {
  private constructor(
    readonly spec: ServerSpec,
    private readonly child: ChildProcess,
    readonly ready: Ready,
    /** From the start of the process to its ready file. */
    readonly startMs: number,
    /** What it used meanwhile: the same on a busy machine as on an idle one. */
    readonly startCpuMs: number,
  ) {}

  /** Throws with the end of its output when it ends or stays silent instead. */
  static async start(spec: ServerSpec): Promise<ServerProcess> {
    const readyFile = join(spec.directory, `${spec.name}.ready`);
    const logFile = join(spec.directory, `${spec.name}.log`);
    const log = openSync(logFile, 'a', 0o600);
    const startedAt = process.hrtime.bigint();
    const elapsedMs = (): number => Number(process.hrtime.bigint() - startedAt) / 1e6;
    const child = spawnTracked(
      process.execPath,
      [spec.script, ...spec.args, '--ready-file', readyFile],
      { stdio: ['ignore', log, log], env: cleanEnvironment(), cwd: spec.directory },
    );
    closeSync(log);
    let ended = false;
    void exitOf(child).then(() => {
      ended = true;
    });
    for (;;) {
      const ready = readReady(readyFile);
      if (ready !== undefined) {
        return new ServerProcess(spec, child, ready, elapsedMs(), usageOf(ready.pid).cpuMs);
      }
      if (ended || elapsedMs() > spec.readyWithinMs) {
        child.kill('SIGKILL');
        const what = ended ? 'ended' : `was not ready within ${spec.readyWithinMs} ms`;
        throw new Error(`The server ${spec.name} ${what}:\n${tailOf(logFile)}`);
      }
      await wait(READY_POLL_MS);
    }
  }

  get name(): string {
    return this.spec.name;
  }
  get url(): string {
    return this.ready.url;
  }
  usage(): ProcessUsage {
    return usageOf(this.ready.pid);
  }

  /** Throws when it had to be killed or did not end with 0. */
  async stop(): Promise<void> {
    const code = await endChild(this.child, STOP_GRACE_MS);
    if (code !== 0) {
      const tail = tailOf(join(this.spec.directory, `${this.spec.name}.log`));
      throw new Error(`The server ${this.name} ended with ${code} after SIGTERM:\n${tail}`);
    }
  }
}

/** Settings of the caller's own server must not change what is measured. */
function cleanEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.startsWith('HALO_')),
  );
}

function readReady(file: string): Ready | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Ready;
  } catch {
    return undefined;
  }
}

function tailOf(file: string): string {
  return readFileSync(file, 'utf8').trimEnd().split('\n').slice(-LOG_TAIL_LINES).join('\n');
}
