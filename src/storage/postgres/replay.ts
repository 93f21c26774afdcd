/**
 * A first view of the streams: catch-ups from the beginning in large pages, each from its own
 * snapshot. Within a stream ids become visible in order, and a record that replaces another comes
 * later with a higher id, so that what was read of it at the last page is a view at one position,
 * without a transaction that would hold back the vacuum and could not pass a pooler's bounds.
 */
import type { Position, StoredRecord } from '../store.js';
import { type Connections, STATEMENT_MAX_MS } from './connections.js';
import { beginning, CATCH_UP, interpret, question, questionValues } from './journal.js';

/** About 5 MB of bodies a page; two are in memory at a time. */
const REPLAY_PAGE_MAX = 20_000;

/** Reads streams from their beginning; what `onRecords` throws ends it and is rethrown. */
export function replay(
  connections: Connections,
  streams: readonly string[],
  onRecords: (records: readonly StoredRecord[]) => void,
): Promise<Position> {
  return connections.use(async (session) => {
    const ask = (position: Position) => {
      const asked = question(position, REPLAY_PAGE_MAX);
      const answer = session.send(CATCH_UP, questionValues(asked), STATEMENT_MAX_MS);
      return answer.then((rows) => interpret(asked, rows));
    };
    let page = await ask(beginning(streams));
    while (page.more) {
      // The server works on the next page while this one is handed over.
      const next = ask(page.position);
      next.catch(() => undefined);
      onRecords(page.records);
      page = await next;
    }
    if (page.records.length > 0) onRecords(page.records);
    return page.position;
  });
}
