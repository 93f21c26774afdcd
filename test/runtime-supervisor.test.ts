import t, { type Test } from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { silentLog } from '../src/runtime/log.js';
import { systemRandom } from '../src/runtime/random.js';
import type { AnswerBounds, ThreadSpec } from '../src/runtime/supervised-thread.js';
import { Supervisor } from '../src/runtime/supervisor.js';
import type { AskingControl } from './fixtures/asking-thread.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { until } from './fixtures/toy-actor.js';

keepAlive(t);

interface Running {
  readonly supervisor: Supervisor<AskingControl>;
  readonly fatal: string[];
  ask(kind: string, payload?: unknown): Promise<unknown>;
}

function spec(name: string, file: string, endsItself: boolean): ThreadSpec {
  return {
    name,
    entry: new URL(`./fixtures/${file}.js`, import.meta.url),
    data: () => ({ data: undefined }),
    endsItself,
  };
}

async function start(t: Test, answers?: AnswerBounds): Promise<Running> {
  const fatal: string[] = [];
  const supervisor = new Supervisor<AskingControl>(
    [{ ...spec('actors-0', 'echo-thread', false), actors: ['echo'], heapMaxMib: 64 }],
    [spec('front-0', 'asking-thread', true)],
    {
      clock: systemClock,
      random: systemRandom,
      log: silentLog,
      onFatal: (reason) => fatal.push(reason),
      ...(answers === undefined ? {} : { answers }),
    },
    async () => undefined,
  );
  t.teardown(() => supervisor.stop());
  await supervisor.start();
  const ask = async (kind: string, payload: unknown = 0): Promise<unknown> =>
    (await supervisor.eachFront(async (control) => control.ask(kind, payload)))[0];
  await untilAnswered(ask);
  return { supervisor, fatal, ask };
}

async function untilAnswered(ask: (kind: string, payload: unknown) => Promise<unknown>) {
  for (let answer: unknown; answer !== 'ping'; ) answer = await ask('read', 'ping');
}

t.test('front threads ask actor threads over ports of their own', async (t) => {
  const { supervisor, ask } = await start(t);
  t.equal(await ask('read', 'hello'), 'hello');
  const { actors, store, problems } = await supervisor.inspect();
  t.same(problems, []);
  t.match(actors, [{ name: 'echo', thread: 'actors-0', state: 'running' }]);
  t.same(store, { opened: 1 });
});

for (const death of ['exit', 'throw', 'exhaust-memory']) {
  t.test(`a thread that dies by ${death} answers what was pending and is replaced`, async (t) => {
    const { supervisor, ask, fatal } = await start(t);
    const pending = ask('never');
    const dying = ask(death);
    t.match(await pending, { failure: 'actor_restarted' });
    if (death !== 'throw') t.match(await dying, { failure: 'actor_restarted' });
    await untilAnswered(ask);
    t.same((await supervisor.inspect()).problems, []);
    t.same(fatal, []);
  });
}

t.test('an actor that crashes again and again is fatal for the process', async (t) => {
  const { supervisor, ask, fatal } = await start(t);
  for (let crash = 0; crash < 6; crash += 1) {
    await untilAnswered(ask);
    t.match(await ask('bug'), { failure: 'actor_restarted' });
  }
  await until(() => fatal.length > 0);
  t.match(fatal, ['The actor echo crashed too often.']);
  t.match((await supervisor.inspect()).problems, ['actor echo is stopped']);
});

t.test('stop is idempotent, safe before start and while starting', async (t) => {
  const { supervisor } = await start(t);
  await Promise.all([supervisor.stop(), supervisor.stop()]);
  await supervisor.stop();
  t.match((await supervisor.inspect()).problems, ['thread front-0 is stopped']);
});

/** As in a server, but that a test can wait for it. */
const IMPATIENT: AnswerBounds = { loadWithinMs: 30_000, pingPeriodMs: 100, pingsMissedMax: 5 };

t.test('an actor thread that hangs answers what was pending and is replaced', async (t) => {
  const { supervisor, ask, fatal } = await start(t, IMPATIENT);
  const pending = ask('never');
  const hanging = ask('hang');
  t.match(await pending, { failure: 'actor_restarted' });
  t.match(await hanging, { failure: 'actor_restarted' });
  await untilAnswered(ask);
  t.same((await supervisor.inspect()).problems, []);
  t.same(fatal, []);
});

t.test('a front thread that hangs is fatal, and holds nobody who tells all of them', async (t) => {
  const { supervisor, fatal } = await start(t, IMPATIENT);
  const beganMs = systemClock.monotonicMs();
  const told = await supervisor.eachFront(async (control) => control.hang(3_000), 200);
  t.same(told, [], 'who does not answer in time is left out');
  t.ok(systemClock.monotonicMs() - beganMs < 2_000);
  await until(() => fatal.length > 0);
  t.same(fatal, ['The thread front-0 does not answer.']);
});

t.test('a thread that never finishes loading fails the start', async (t) => {
  const fatal: string[] = [];
  const supervisor = new Supervisor<AskingControl>(
    [{ ...spec('actors-0', 'hanging-thread', false), actors: ['echo'] }],
    [],
    {
      clock: systemClock,
      random: systemRandom,
      log: silentLog,
      onFatal: (reason) => fatal.push(reason),
      answers: { ...IMPATIENT, loadWithinMs: 200 },
    },
    async () => undefined,
  );
  await t.rejects(supervisor.start(), { message: 'Thread actors-0 did not load in time.' });
  await supervisor.stop();
  t.same(fatal, []);
});
