import t from 'tap';
import { ACTOR_NAMES } from '../src/actors/catalogue.js';
import { EXIT_USAGE, exitCodeOf } from '../src/cli/exit-codes.js';
import { serverThreadCounts } from '../src/cli/serve-threads.js';
import { divideConnections } from '../src/runtime/connection-budget.js';

const byTheCores = { frontThreads: null, actorThreads: null };
/** What `--database-max-conns` is without the option, and the most that the main thread keeps. */
const CONNECTIONS_DEFAULT = 16;
const RESERVED_MOST = 2;

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
