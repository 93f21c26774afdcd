import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';

const PROGRAM = fileURLToPath(new URL('./fixtures/held-process.js', import.meta.url));
/** Both bounds in the fixture are below a second or so; a busy machine may take longer. */
const ENDS_WITHIN_MS = 15_000;

async function run(t: Test, how: string): Promise<{ ended: unknown; output: string }> {
  const child = spawn(process.execPath, [PROGRAM, how], { stdio: ['ignore', 'pipe', 'inherit'] });
  const late = setTimeout(() => child.kill('SIGTERM'), ENDS_WITHIN_MS);
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    output += chunk.toString();
  });
  const [code, signal] = await once(child, 'close');
  clearTimeout(late);
  return { ended: code ?? signal, output };
}

t.test('a process that is held while it ends is killed at its bound', async (t) => {
  const beganMs = Date.now();
  const { ended, output } = await run(t, 'armed');
  t.ok(Date.now() - beganMs >= 1_000, 'and not before, though it was told twice');
  t.equal(ended, 'SIGKILL');
  t.match(JSON.parse(output), {
    level: 'error',
    thread: 'watchdog',
    msg: 'The process is killed.',
    reason: 'The shutdown took longer than its bound.',
  });
});

t.test('a process whose main thread is held is killed though nobody told it to end', async (t) => {
  const { ended, output } = await run(t, 'silent');
  t.equal(ended, 'SIGKILL');
  t.match(JSON.parse(output), { reason: 'The main thread does not answer.' });
});

t.test('a main thread that beats lives on, past any number of looks', async (t) => {
  t.same(await run(t, 'beating'), { ended: 4, output: '' });
});

t.test('a process that has nothing left to do ends by itself, watched or not', async (t) => {
  t.same(await run(t, 'idle'), { ended: 0, output: '' });
});
