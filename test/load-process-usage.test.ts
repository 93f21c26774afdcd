import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import {
  endedChildrenCpuMs,
  machineCpuMs,
  parseMachineCpuMs,
  parseStat,
  parseStatusBytes,
  treeCpuMs,
  usageOf,
} from '../load/process-usage.js';

/** Uses `cpuMs` of CPU time as it is told to count itself, says so, and waits to be ended. */
function spinner(cpuMs: number, command = process.execPath): ReturnType<typeof spawn> {
  const script = `
    while (process.cpuUsage().user + process.cpuUsage().system < ${cpuMs * 1000});
    console.log('done');
    setInterval(() => {}, 1000);
  `;
  return spawn(command, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
}

t.test('CPU time is read past a command name with spaces and parentheses', async (t) => {
  const text = '42 (a) b (c)) S 7 42 42 0 -1 4194304 1 2 3 4 150 50 20 5 20 0 11 0 12345 1 1\n';
  t.same(parseStat(text), { parent: 7, cpuMs: 2000, childrenCpuMs: 250 });
});

t.test('memory is read in bytes, and is 0 where a line is missing', async (t) => {
  const text = 'Name:\tnode\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n';
  t.equal(parseStatusBytes(text, 'VmRSS'), 1024 * 1024);
  t.equal(parseStatusBytes(text, 'VmHWM'), 2048 * 1024);
  t.equal(parseStatusBytes(text, 'VmSwap'), 0);
});

t.test('the machine’s CPU time leaves out what was idle, waiting or stolen', async (t) => {
  t.equal(parseMachineCpuMs('cpu  100 20 30 9999 888 4 6 777 50 5\ncpu0 1 2\n'), 1600);
  const before = machineCpuMs();
  const child = spinner(100);
  t.teardown(() => child.kill('SIGKILL'));
  await once(child.stdout!, 'data');
  t.ok(machineCpuMs() >= before + 80, 'it counts every process');
});

t.test('a process that used 300 ms of CPU time is measured so', async (t) => {
  const child = spinner(300);
  t.teardown(() => child.kill('SIGKILL'));
  await once(child.stdout!, 'data');
  const { cpuMs, rssBytes, rssPeakBytes } = usageOf(child.pid!);
  t.ok(cpuMs >= 280 && cpuMs < 600, `measured ${cpuMs} ms`);
  t.ok(rssBytes > 10e6 && rssPeakBytes >= rssBytes, `${rssBytes} of at most ${rssPeakBytes}`);
  t.ok(treeCpuMs(process.pid) >= usageOf(process.pid).cpuMs + 280, 'its parent counts it');
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.ok(endedChildrenCpuMs() >= 280, 'and still does when it has ended');
});

t.test('a process that is gone cannot be measured', async (t) => {
  const child = spinner(0);
  await once(child.stdout!, 'data');
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.throws(() => usageOf(child.pid!), { code: 'ENOENT' });
});
