import t from 'tap';
import { ACTOR_NAMES } from '../src/actors/catalogue.js';
import { EXIT_USAGE, exitCodeOf } from '../src/cli/exit-codes.js';
import {
  actorThreadSpecs,
  frontThreadSpecs,
  serverThreadCounts,
  threadHeapMaxMib,
  usableMemoryBytes,
} from '../src/cli/serve-threads.js';
import { divideConnections } from '../src/runtime/connection-budget.js';

const byTheCores = { frontThreads: null, actorThreads: null };
/** What `--database-max-conns` is without the option, and the most that the main thread keeps. */
const CONNECTIONS_DEFAULT = 16;
const RESERVED_MOST = 3;

t.test('the default options start on PostgreSQL whatever number of cores there is', async (t) => {
  for (const cores of [1, 2, 8, 16, 31, 32, 64, 256]) {
    const { actors } = serverThreadCounts(byTheCores, cores);
    t.ok(actors <= ACTOR_NAMES.length, `${cores} cores: no more threads than actors`);
    const perActorThread = divideConnections(CONNECTIONS_DEFAULT, actors, RESERVED_MOST);
    t.ok(perActorThread >= 2, `${cores} cores: ${perActorThread} connections for each`);
  }
});

t.test('threads that no actor is left for are not counted, who ever asked for them', async (t) => {
  t.same(serverThreadCounts({ frontThreads: 3, actorThreads: 64 }, 2), {
    front: 3,
    actors: ACTOR_NAMES.length,
  });
  t.same(serverThreadCounts({ frontThreads: null, actorThreads: 1 }, 8), { front: 4, actors: 1 });
});

t.test('too few connections for the threads is wrong usage', async (t) => {
  let error: unknown;
  try {
    divideConnections(4, 2, 2);
  } catch (thrown) {
    error = thrown;
  }
  t.match(error, { code: 'usage', message: /at least 6/ });
  t.equal(exitCodeOf(error), EXIT_USAGE);
});

t.test(
  'all heaps together leave a quarter of the memory, and each lets a thread live',
  async (t) => {
    const gib = 1_024 ** 3;
    t.equal(threadHeapMaxMib(4 * gib, { front: 1, actors: 1 }), 1_536);
    t.equal(threadHeapMaxMib(64 * gib, { front: 16, actors: 4 }), 2_457);
    t.equal(threadHeapMaxMib(256 * gib, { front: 1, actors: 1 }), 4_096);
    t.equal(threadHeapMaxMib(gib / 2, { front: 1, actors: 1 }), 256);
    t.ok(usableMemoryBytes() > gib / 4 && Number.isSafeInteger(usableMemoryBytes()));
  },
);

t.test('every thread has the limit: without one, none dies of its memory in time', async (t) => {
  const settings = { logLevel: 'silent', heapMaxMib: 300 };
  const specs = [
    ...actorThreadSpecs(2, {} as never, {} as never, settings),
    ...frontThreadSpecs(2, {} as never, () => [], settings),
  ];
  t.same(
    specs.map(({ heapMaxMib }) => heapMaxMib),
    [300, 300, 300, 300],
  );
});
