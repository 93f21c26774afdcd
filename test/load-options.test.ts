import t from 'tap';
import { parseLoadOptions } from '../load/options.js';
import { PROFILES } from '../load/profile-list.js';

function silently<Result>(act: () => Result): { result: Result; output: string } {
  const { write: out } = process.stdout;
  const { write: err } = process.stderr;
  let output = '';
  const collect = (text: unknown): boolean => {
    output += String(text);
    return true;
  };
  process.stdout.write = collect as typeof process.stdout.write;
  process.stderr.write = collect as typeof process.stderr.write;
  try {
    return { result: act(), output };
  } finally {
    process.stdout.write = out;
    process.stderr.write = err;
  }
}

t.test('a profile alone runs with the defaults of the targets', async (t) => {
  t.same(parseLoadOptions(['device-auth']), {
    kind: 'run',
    options: {
      profile: 'device-auth',
      backend: 'file',
      replicas: 1,
      connections: 64,
      durationSeconds: 9,
      rounds: 3,
      devices: 1000,
      generator: 'autocannon',
      record: false,
      enforce: false,
      serverArgs: [],
    },
  });
});

t.test('every option is taken', async (t) => {
  const text =
    'device-scale --backend postgres --connections 256 --rate 5000 --duration 30 ' +
    '--rounds 5 --devices 50000 --generator autocannon --json out.json --record --enforce';
  const parsed = parseLoadOptions([...text.split(' '), '--server-args', '--front-threads 2']);
  t.same(parsed, {
    kind: 'run',
    options: {
      profile: 'device-scale',
      backend: 'postgres',
      replicas: 1,
      connections: 256,
      rate: 5000,
      durationSeconds: 30,
      rounds: 5,
      devices: 50_000,
      generator: 'autocannon',
      jsonFile: 'out.json',
      record: true,
      enforce: true,
      serverArgs: ['--front-threads', '2'],
    },
  });
});

t.test('what makes no sense is wrong usage, said in a line', async (t) => {
  const wrong = [
    '',
    'device-typo',
    'device-auth --backend mysql',
    'device-auth --replicas 2',
    'device-auth --replicas 0 --backend postgres',
    'device-auth --connections many',
    'device-auth --connections 0',
    'device-auth --connections 1 --replicas 2 --backend postgres',
    'device-auth --duration -1',
    'device-auth --duration 1e3',
    'device-auth --devices 1',
    'device-scale --replicas 2 --backend postgres',
    'device-scale --devices 1000',
    'device-auth --rate 10',
    'device-auth --rate 5000 --generator wrk',
    'device-auth --generator ab',
    'device-auth --unknown',
    'device-auth --streams 5',
    'idle-streams --streams 0',
    'idle-streams --backend file',
    'kill-fanout --replicas 1',
    'overload --rate 5000',
    'device-auth device-auth',
  ];
  for (const text of wrong) {
    const argv = text.split(' ').filter((argument) => argument !== '');
    const { result, output } = silently(() => parseLoadOptions(argv));
    t.same(result, { kind: 'usage' }, text);
    t.match(output, /error: /, `${text}: the reason is printed`);
  }
});

t.test('help names every option and is no error', async (t) => {
  const { result, output } = silently(() => parseLoadOptions(['--help']));
  t.same(result, { kind: 'help' });
  for (const option of ['--backend', '--replicas', '--rate', '--duration', '--devices', '--json']) {
    t.match(output, option);
  }
});

t.test('one list names every profile, in help, for a wrong name and when asked for', async (t) => {
  const list = silently(() => parseLoadOptions(['--list']));
  t.same(list.result, { kind: 'help' });
  t.equal(list.output.trimEnd().split('\n').length, PROFILES.length, 'a line each');
  const help = silently(() => parseLoadOptions(['--help'])).output;
  const wrong = silently(() => parseLoadOptions(['device-typo'])).output;
  for (const { name, summary } of PROFILES) {
    t.match(list.output, `${name} `);
    t.match(list.output, summary);
    t.match(help, summary);
    t.match(wrong, name);
  }
});

t.test('a profile that is about streams or a rate has its own defaults', async (t) => {
  t.match(parseLoadOptions(['idle-streams']), { options: { streams: 10_000, replicas: 1 } });
  t.match(parseLoadOptions(['kill-fanout', '--streams', '7']), { options: { streams: 7 } });
  t.match(parseLoadOptions(['device-auth-churn']), {
    options: { rate: 5_000, replicas: 2, backend: 'postgres' },
  });
});
