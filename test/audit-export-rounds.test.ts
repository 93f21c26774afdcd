/**
 * Random rounds of forwarding, on the model store and a simulated clock: replicas start, stop and
 * lose their leases, sinks fail and hang, commits fail before and after, and come late. `SEED`
 * begins them, `ROUNDS` says how many.
 */
import t from 'tap';
import type { SinkBatch } from '../src/actors/audit-export/sink.js';
import { CodedError } from '../src/runtime/failure.js';
import { type Random, seededRandom } from '../src/runtime/random.js';
import { StoreError } from '../src/storage/store-error.js';
import { type ExportingReplica, ExportWorld, Receiver } from './fixtures/exporting-replica.js';

const SEED = Number(process.env['SEED'] ?? Date.now() % 1_000_000);
const ROUNDS = Number(process.env['ROUNDS'] ?? 60);
t.comment(`seed ${SEED}, ${ROUNDS} rounds`);
t.setTimeout(60_000 + ROUNDS * 2_000);

const STEPS = 40;
const COMMIT_DELAY_MAX_MS = 8_000;

/** Takes, refuses, is slow, hangs until it is told to stop, or takes and says nothing. */
function weather(world: ExportWorld, random: Random): Receiver['behave'] {
  return (_batch: SinkBatch, signal: AbortSignal) => {
    const dice = random.fraction();
    const after = (ms: number): Promise<void> =>
      new Promise((resolve) => world.clock.schedule(resolve, ms));
    const stopped = (): Promise<void> =>
      new Promise((_, reject) => {
        signal.addEventListener('abort', () => reject(new Error('stopped')));
      });
    if (dice < 0.5) return Promise.resolve();
    if (dice < 0.7) return Promise.reject(new CodedError('webhook_refused', 'not now'));
    if (dice < 0.9) return after(random.fraction() * 10_000);
    return dice < 0.95 ? stopped() : after(random.fraction() * 60_000);
  };
}

class Round {
  readonly world: ExportWorld;
  readonly receiver = new Receiver();
  private readonly random: Random;
  private replicas: ExportingReplica[] = [];
  private started = 0;
  private seen = -1;
  readonly faults: string[] = [];

  constructor(seed: number) {
    this.world = new ExportWorld(seed);
    this.random = seededRandom(seed + 1);
    this.receiver.behave = weather(this.world, this.random);
  }

  async run(): Promise<void> {
    this.start();
    this.start();
    for (let step = 0; step < STEPS; step += 1) {
      await this.step();
      await this.world.clock.advance(this.random.fraction() * 4_000);
      await this.look();
    }
    this.receiver.behave = async () => undefined;
    for (const replica of this.replicas) replica.hooks = {};
    if (this.replicas.length === 0) this.start();
    const head = await this.world.head();
    await this.world.until('all is delivered', () => this.receiver.kept.length > head, 600_000);
    await this.world.clock.advance(1_000);
    await this.look();
    for (const replica of this.replicas) await this.stop(replica);
  }

  private start(): void {
    this.started += 1;
    const sinks = [this.receiver.sink('siem', 1 + Math.floor(this.random.fraction() * 8))];
    const replica = this.world.replica(`r${this.started}`, sinks);
    replica.hooks = {
      before: (operation) => {
        if (operation !== 'commit') return undefined;
        const dice = this.random.fraction();
        if (dice < 0.1) throw new StoreError('store_unavailable', 'It is away.');
        if (dice < 0.8) return undefined;
        // Long enough for the lease to be another's by then.
        const ms = this.random.fraction() * COMMIT_DELAY_MAX_MS;
        return new Promise((resolve) => this.world.clock.schedule(resolve, ms));
      },
      after: (operation) => {
        if (operation === 'commit' && this.random.fraction() < 0.1) {
          throw new StoreError('outcome_unknown', 'The answer is lost.');
        }
      },
    };
    this.replicas.push(replica);
  }

  /** Time has to pass meanwhile: what it waits for is on the simulated clock. */
  private async stop(replica: ExportingReplica): Promise<void> {
    let stopped = false;
    void replica.stop().then(() => {
      stopped = true;
    });
    await this.world.until('it stops', () => stopped, 20_000);
  }

  private async step(): Promise<void> {
    const dice = this.random.fraction();
    const { leases } = this.world.database;
    if (dice < 0.5) {
      await this.world.chain(1 + Math.floor(this.random.fraction() * 20));
    } else if (dice < 0.6) {
      this.faults.push('start');
      if (this.replicas.length < 4) this.start();
    } else if (dice < 0.7) {
      this.faults.push('stop');
      const [oldest] = this.replicas.splice(0, 1);
      if (oldest) await this.stop(oldest);
    } else if (dice < 0.85) {
      this.faults.push('lost lease');
      leases.forget('audit-export-siem');
      const claim = { lease: 'audit-export-siem', holder: 'another' };
      leases.claim(claim, 1_000, this.world.database.nowMs());
    }
  }

  /** The cursor never goes back, and never before what was taken. */
  private async look(): Promise<void> {
    const { seq } = await this.world.cursor('siem');
    if (seq < this.seen) throw new Error(`the cursor went from ${this.seen} to ${seq}`);
    const newest = Math.max(-1, ...this.receiver.seqs);
    if (seq > newest) throw new Error(`the cursor is at ${seq}, the sink has ${newest}`);
    this.seen = seq;
  }
}

t.test('whatever fails, a sink gets every record in order and no cursor goes back', async (t) => {
  let repeats = 0;
  for (let seed = SEED; seed < SEED + ROUNDS; seed += 1) {
    const round = new Round(seed);
    await round.run().catch((error: unknown) => {
      throw new Error(`seed ${seed}: ${String(error)}`);
    });
    const head = await round.world.head();
    const { kept, seqs } = round.receiver;
    repeats += seqs.length - kept.length;
    const isWhole = kept.length === head + 1 && kept.every((seq, index) => seq === index);
    t.ok(isWhole, `seed ${seed}: ${head + 1} records, ${round.faults.length} faults`);
  }
  t.ok(repeats > 0 || ROUNDS < 20, `${repeats} came more than once`);
});
