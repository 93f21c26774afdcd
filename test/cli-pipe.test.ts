/** Commands whose reader goes away, as in `halo devices list | head -1`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import t from 'tap';

for (const program of ['halo', 'halo-verify']) {
  t.test(`${program} ends quietly when nobody reads on`, async (t) => {
    const file = fileURLToPath(new URL(`../src/cli/${program}.js`, import.meta.url));
    const child = spawn(process.execPath, [file, '--help'], { stdio: ['ignore', 'pipe', 'pipe'] });
    // Long before it has started: its first write meets a pipe without a reader.
    child.stdout.destroy();
    let said = '';
    child.stderr.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    const [code] = (await once(child, 'close')) as [number | null];
    t.same([code, said], [0, '']);
  });
}
