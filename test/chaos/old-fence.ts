/**
 * A write under a term that is over, as a leader would send it that neither looked at its deadline
 * nor heard of its end: through the product's own store, past every check but the store's.
 */
import { systemClock } from '../../src/runtime/clock.js';
import type { Fence } from '../../src/runtime/lease.js';
import { silentLog } from '../../src/runtime/log.js';
import { systemRandom } from '../../src/runtime/random.js';
import { openStore } from '../../src/storage/open-store.js';

/** Of a document that nothing else knows. */
const KEY = { kind: 'chaos-probe', id: 'deposed' };

/** The code that it was refused with; undefined: it was committed. */
export async function writeUnder(url: string, fence: Fence): Promise<string | undefined> {
  const environment = { clock: systemClock, random: systemRandom, log: silentLog };
  const source = { url, pooled: false, insecureTls: true, connectionsMax: 2 };
  const store = openStore({ backend: 'postgres', ...source }, environment);
  try {
    const position = await store.replay([], () => undefined);
    await store.commit({ streams: [], position, documents: [KEY], fence }, () => ({
      documents: [{ op: 'put', ...KEY, body: '{}', expiresAtMs: null }],
    }));
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  } finally {
    await store.close();
  }
}
