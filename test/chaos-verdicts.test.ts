/** What `halo chaos` concludes from what it saw: the parts that need no replicas. */
import t from 'tap';
import { actedDeposed } from './chaos/acting.js';
import { Book, exitCodeOf, GUARANTEES, verdictText } from './chaos/guarantees.js';
import type { Delivery } from './chaos/receiver.js';
import { cursorFault, type Held, type Look, tokenFault } from './chaos/watcher.js';

function look(atMs: number, held: Partial<Held>, cursor = 0): Look {
  const row = { holder: 'p1.1', token: 1, remainingMs: 1_000, ...held };
  const leases = new Map([['l', row]]);
  return { askedMs: atMs, seenMs: atMs + 1, leases, cursor, headSeq: 0 };
}

function bookWhereAllHeld(): Book {
  const book = new Book();
  for (const name of Object.keys(GUARANTEES)) book.kept(name as keyof typeof GUARANTEES, 'x');
  return book;
}

t.test('only a run in which everything was tested and held ends with 0', async (t) => {
  t.equal(exitCodeOf(bookWhereAllHeld().judge()), 0);
  const untested = new Book().judge();
  t.equal(exitCodeOf(untested), 1);
  t.ok(untested.every(({ verdict }) => verdict === 'inconclusive'));
  const broken = bookWhereAllHeld();
  broken.broken('tokens grow', 'round 1', 'token 1 after 2');
  const judged = broken.judge();
  t.equal(exitCodeOf(judged), 1);
  t.same(
    judged.filter(({ verdict }) => verdict !== 'held').map(({ guarantee }) => guarantee),
    ['tokens grow'],
  );
  t.match(verdictText(judged), /tokens grow +broken +2 tests\n {2}round 1: token 1 after 2\n/);
});

t.test('a fault that was not there makes everything inconclusive, but what broke', async (t) => {
  const book = bookWhereAllHeld();
  book.broken('tokens grow', 'round 1', 'token 1 after 2');
  book.faultWasAbsent('round 2, leader-killed', 'it ended with 0');
  const judged = book.judge();
  t.equal(exitCodeOf(judged), 1);
  for (const { guarantee, verdict, reasons } of judged) {
    t.equal(verdict, guarantee === 'tokens grow' ? 'broken' : 'inconclusive', guarantee);
    t.equal(reasons.length, 1);
  }
});

t.test('tokens that go back, or that two holders have, are seen', async (t) => {
  const fine = [
    look(0, {}),
    look(20, { holder: 'p2.1', token: 5 }),
    look(40, { holder: 'p2.1', token: 5 }),
  ];
  t.equal(tokenFault(fine), undefined);
  t.equal(tokenFault([...fine, look(60, { token: 4 })]), 'l: token 4 after 5');
  t.match(tokenFault([...fine, look(60, { token: 5 })]), /p2\.1 and p1\.1 under token 5/);
});

t.test('a cursor that goes back is seen', async (t) => {
  t.equal(cursorFault([look(0, {}, 3), look(20, {}, 3), look(40, {}, 9)]), undefined);
  t.equal(cursorFault([look(0, {}, 9), look(20, {}, 3)]), 'the cursor went back from 9 to 3');
});

t.test('who delivers while another leads is seen, the delivery under way excepted', async (t) => {
  const replicaOf = (holder: string): string | undefined =>
    new Map([
      ['p1.1', 'r1'],
      ['p2.1', 'r2'],
    ]).get(holder);
  const looks = Array.from({ length: 100 }, (_, index) =>
    look(index * 20, index < 50 ? {} : { holder: 'p2.1', token: 2 }),
  );
  const by = (replica: string, atMs: number): Delivery => ({
    replica,
    atMs,
    firstSeq: 1,
    lastSeq: 2,
  });
  const judge = (deliveries: Delivery[], continued: { replica: string; atMs: number }[] = []) =>
    actedDeposed(deliveries, looks, 'l', replicaOf, continued);
  t.same(judge([by('r1', 900), by('r2', 1_900)]), [], 'each in its term');
  t.same(judge([by('r1', 1_100)]), [], 'it had it a moment ago');
  t.same(judge([by('r2', 999.5)]), [], 'it has it before anybody has looked');
  t.same(judge([by('r1', 1_900)]), ['r1 delivered 1 to 2 while r2 led']);
  t.same(judge([by('r1', 1_900)], [{ replica: 'r1', atMs: 1_890 }]), [], 'it was under way');
  t.equal(
    judge([by('r1', 1_900), by('r1', 1_910)], [{ replica: 'r1', atMs: 1_890 }]).length,
    1,
    'only one can have been',
  );
  t.equal(judge([by('r1', 1_900)], [{ replica: 'r1', atMs: 1_200 }]).length, 1, 'long after');
  t.same(
    actedDeposed(
      [by('r1', 1_900)],
      looks.map((one) => ({ ...one, leases: new Map() })),
      'l',
      replicaOf,
      [],
    ),
    [],
    'nobody is known to lead',
  );
});
