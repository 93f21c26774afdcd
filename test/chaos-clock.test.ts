/** A replica's clock that is wrong on purpose. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import t from 'tap';

const PROGRAM = fileURLToPath(new URL('../src/cli/halo-server.js', import.meta.url));

t.test('a server refuses a clock offset without the flag, and one that is no number', async (t) => {
  for (const environment of [
    { HALO_CLOCK_OFFSET_MS: '5' },
    { HALO_CLOCK_OFFSET_MS: '5', HALO_TEST_CLOCK: 'false' },
    { HALO_CLOCK_OFFSET_MS: '5s', HALO_TEST_CLOCK: 'true' },
  ]) {
    const env = { PATH: process.env['PATH'], ...environment };
    const args = [PROGRAM, 'serve', '--dev', '--data-dir', t.testdir()];
    const { status, stderr } = spawnSync(process.execPath, args, { env, timeout: 20_000 });
    t.equal(status, 2);
    t.match(stderr.toString(), /whole number of milliseconds, with HALO_TEST_CLOCK=true beside it/);
  }
});
