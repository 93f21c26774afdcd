/** `halo chaos` as a command: what it plays, and what it refuses. */
import t from 'tap';
import { runHalo } from '../src/cli/halo/program.js';

// A scenario takes some seconds, and a busy machine several times that.
t.setTimeout(170_000);

async function halo(...args: string[]): Promise<{ exitCode: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const exitCode = await runHalo(['chaos', ...args], {
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
    environment: {},
  });
  return { exitCode, out, err };
}

t.test('a leader that is stopped past its lease: what was tested held, by name', async (t) => {
  const { exitCode, out } = await halo('--scenario', 'leader-stopped', '--seed', '7', '--json');
  const { seed, judged } = JSON.parse(out);
  t.equal(seed, 7);
  const verdicts = Object.fromEntries(
    judged.map(({ guarantee, verdict }: Record<string, string>) => [guarantee, verdict]),
  );
  t.same(verdicts, {
    'one leader acts': 'held',
    'a lease has one holder': 'held',
    'a deposed leader writes nothing': 'held',
    'tokens grow': 'held',
    'the lease goes on': 'held',
    'the chain goes on': 'held',
    'nothing answered is lost': 'held',
    'who is revoked stays out': 'held',
    'every record is forwarded': 'held',
    'service is back by itself': 'held',
    'the chain verifies': 'held',
  });
  t.equal(exitCode, 0);
});

t.test('it lists what it plays, and refuses what it does not know', async (t) => {
  const listed = await halo('--list');
  t.equal(listed.exitCode, 0);
  t.match(listed.out, /leader-killed[\s\S]*clock-skewed[\s\S]*one leader acts/);
  for (const args of [
    ['--scenario', 'sunshine'],
    ['--rounds', '0'],
    ['--seed', 'x'],
    ['--replicas', '1'],
    ['--wat'],
  ]) {
    t.equal((await halo(...args)).exitCode, 2, args.join(' '));
  }
});
