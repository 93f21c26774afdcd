/** CPU time and memory of other processes, as Linux accounts for them in /proc. */
import { readdirSync, readFileSync } from 'node:fs';

/** USER_HZ, in which /proc counts CPU time: 100 on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;
const MS_PER_TICK = 1000 / TICKS_PER_SECOND;

export interface ProcessUsage {
  /** User and system time of all threads, the ended ones included, and of waited-for children. */
  readonly cpuMs: number;
  readonly rssBytes: number;
  readonly rssPeakBytes: number;
}

interface ProcessStat {
  readonly parent: number;
  readonly cpuMs: number;
  readonly childrenCpuMs: number;
}

/** Parses `/proc/<pid>/stat` (proc(5)); the command's name in it may hold anything. */
export function parseStat(text: string): ProcessStat {
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const field = (number: number): number => Number(fields[number - 3]);
  return {
    parent: field(4),
    cpuMs: (field(14) + field(15)) * MS_PER_TICK,
    childrenCpuMs: (field(16) + field(17)) * MS_PER_TICK,
  };
}

/** Reads a line such as `VmRSS:   1024 kB` of `/proc/<pid>/status`, in bytes; 0 if absent. */
export function parseStatusBytes(text: string, name: string): number {
  const match = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(text);
  return match === null ? 0 : Number(match[1]) * 1024;
}

/** Throws when the process is gone. */
export function usageOf(pid: number): ProcessUsage {
  const { cpuMs, childrenCpuMs } = parseStat(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  const status = readFileSync(`/proc/${pid}/status`, 'latin1');
  return {
    cpuMs: cpuMs + childrenCpuMs,
    rssBytes: parseStatusBytes(status, 'VmRSS'),
    rssPeakBytes: parseStatusBytes(status, 'VmHWM'),
  };
}

/** The CPU time of the children of this process that ended and were waited for. */
export function endedChildrenCpuMs(): number {
  return parseStat(readFileSync('/proc/self/stat', 'latin1')).childrenCpuMs;
}

/** The CPU time that all processes of the machine used since it started. */
export function machineCpuMs(): number {
  return parseMachineCpuMs(readFileSync('/proc/stat', 'latin1'));
}

/** Parses the first line of `/proc/stat` (proc(5)): all but idle, iowait, steal and guests. */
export function parseMachineCpuMs(text: string): number {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = text
    .slice(0, text.indexOf('\n'))
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return (user + nice + system + irq + softirq) * MS_PER_TICK;
}

/** The CPU time of a process and all its descendants: of a PostgreSQL server with its backends. */
export function treeCpuMs(root: number): number {
  const stats = new Map<number, ProcessStat>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      stats.set(Number(name), parseStat(readFileSync(`/proc/${name}/stat`, 'latin1')));
    } catch {
      // It ended between the listing and the reading; its parent has waited for its time.
    }
  }
  const isBelow = (pid: number): boolean => {
    // A chain of parents is short; the bound only guards against pids reused while reading.
    for (let current = pid, steps = 0; current > 1 && steps < 64; steps += 1) {
      if (current === root) return true;
      current = stats.get(current)?.parent ?? 0;
    }
    return false;
  };
  let total = 0;
  for (const [pid, stat] of stats) {
    if (isBelow(pid)) total += stat.cpuMs + stat.childrenCpuMs;
  }
  return total;
}
