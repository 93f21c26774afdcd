/** What `halo chaos` judges: each guarantee, and what became of it. Pure. */

/** In the order in which they are printed. */
export const GUARANTEES = {
  'one leader acts': 'a sink hears of one replica at a time: the one that has its lease',
  'a lease has one holder': 'no term begins while another has time left',
  'a deposed leader writes nothing': 'the cursor under a lease’s fence never goes back',
  'tokens grow': 'no term of a lease has a token that an earlier one had',
  'the lease goes on': 'another leads within the lease’s life and a second',
  'the chain goes on': 'evidence is chained again within three seconds of a kill',
  'nothing answered is lost': 'devices and kills that were answered are there on every replica',
  'who is revoked stays out': 'no replica lets a revoked or killed device in after the answer',
  'every record is forwarded': 'the sink has every record of the chain, without a gap',
  'clocks of replicas judge nothing': 'a clock that is off moves no lease and no expiry',
  'service is back by itself': 'every replica is ready again after the fault',
  'the chain verifies': 'halo-verify finds no gap, no fork and no loss in database and outbox',
} as const;

export type Guarantee = keyof typeof GUARANTEES;

export type Verdict = 'held' | 'broken' | 'inconclusive';

/** Why a guarantee is broken, or what was looked at without finding anything wrong. */
interface Entry {
  readonly guarantee: Guarantee;
  readonly where: string;
  readonly fault?: string;
}

/** One guarantee's end. */
export interface Judged {
  readonly guarantee: Guarantee;
  readonly verdict: Verdict;
  /** How often it was put to the test. */
  readonly tests: number;
  /** What was seen, or why nothing can be said. */
  readonly reasons: readonly string[];
}

const REASONS_MAX = 5;

/** What was seen in a run. A guarantee that nothing was asked of is inconclusive. */
export class Book {
  private readonly entries: Entry[] = [];
  private readonly absent: string[] = [];

  /** It was put to the test, and kept. */
  kept(guarantee: Guarantee, where: string): void {
    this.entries.push({ guarantee, where });
  }

  /** It was put to the test, and was not kept. */
  broken(guarantee: Guarantee, where: string, fault: string): void {
    this.entries.push({ guarantee, where, fault });
  }

  /** `kept` unless there is a fault. */
  tested(guarantee: Guarantee, where: string, fault: string | undefined): void {
    if (fault === undefined) this.kept(guarantee, where);
    else this.broken(guarantee, where, fault);
  }

  /** A fault that should have been there was not: nothing of this run can be relied on. */
  faultWasAbsent(where: string, why: string): void {
    this.absent.push(`${where}: ${why}`);
  }

  /** Of all guarantees, or of those that the scenarios which were played put to the test. */
  judge(asked: readonly Guarantee[] = Object.keys(GUARANTEES) as Guarantee[]): Judged[] {
    return asked.map((guarantee) => {
      const own = this.entries.filter((entry) => entry.guarantee === guarantee);
      const faults = own.flatMap(({ where, fault }) =>
        fault === undefined ? [] : [`${where}: ${fault}`],
      );
      const tests = own.length;
      const judged = { guarantee, tests };
      if (faults.length > 0) {
        return { ...judged, verdict: 'broken', reasons: faults.slice(0, REASONS_MAX) };
      }
      if (this.absent.length > 0) {
        return { ...judged, verdict: 'inconclusive', reasons: this.absent.slice(0, REASONS_MAX) };
      }
      if (tests > 0) return { ...judged, verdict: 'held', reasons: [] };
      return { ...judged, verdict: 'inconclusive', reasons: ['nothing put it to the test'] };
    });
  }
}

/** 0 only when every guarantee of those that were asked about held. */
export function exitCodeOf(judged: readonly Judged[]): 0 | 1 {
  return judged.every(({ verdict }) => verdict === 'held') ? 0 : 1;
}

/** A line for each, and what is to be said beside it. */
export function verdictText(judged: readonly Judged[]): string {
  const width = Math.max(...judged.map(({ guarantee }) => guarantee.length));
  return judged
    .flatMap(({ guarantee, verdict, tests, reasons }) => [
      `${guarantee.padEnd(width)}  ${verdict.padEnd(12)}  ${String(tests).padStart(4)} tests`,
      ...reasons.map((reason) => `  ${reason}`),
    ])
    .map((line) => `${line}\n`)
    .join('');
}
