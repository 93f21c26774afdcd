/** Work for other cores: it is done, and what is too much is refused as such. */
import t from 'tap';
import { openCpuPool } from '../src/runtime/cpu-pool.js';

const TASKS = new URL('../src/http/cpu-tasks.js', import.meta.url);
/** Above what may wait (10,000), whatever a worker finishes meanwhile. */
const TOO_MANY = 12_000;

t.test('a queue that is full refuses the rest as overload and does what it holds', async (t) => {
  const pool = openCpuPool(TASKS, 1);
  t.teardown(() => pool.close());
  const proof = { publicKey: 'x', message: 'm', signature: 'y' };
  const asked = Array.from({ length: TOO_MANY }, () => pool.run<boolean>('verifyProof', proof));
  const codes = new Map<string, number>();
  for (const result of await Promise.allSettled(asked)) {
    const code =
      result.status === 'fulfilled'
        ? String(result.value)
        : ((result.reason as { code?: string }).code ?? String(result.reason));
    codes.set(code, (codes.get(code) ?? 0) + 1);
  }
  t.same([...codes.keys()].sort(), ['false', 'overloaded']);
  t.ok((codes.get('false') ?? 0) >= 10_000, `${codes.get('false')} were done`);
});
