/** Everything that one run consists of; whatever is asked in it is asked through `call`. */
import type { EvidenceRecorder } from '../../src/actors/evidence.js';
import { type Random, seededRandom } from '../../src/runtime/random.js';
import { SimulatedClock } from '../../src/runtime/simulated-clock.js';
import { Dice } from './dice.js';
import type { Answer, Asked } from './door.js';
import { simulatedRecorder } from './evidence-check.js';
import { type Call, describeCall, History, shorten } from './history.js';
import { Promises } from './promises.js';
import { SimulatedReplica } from './replica.js';
import { CALM, type Settings } from './settings.js';
import { SimulatedDatabase, StoreServer } from './simulated-store.js';
import { StoreTime } from './store-time.js';
import { Trace } from './trace.js';

export class World {
  readonly clock = new SimulatedClock();
  readonly trace = new Trace(this.clock);
  readonly storeTime = new StoreTime(this.clock);
  readonly history = new History();
  readonly replicas: SimulatedReplica[];
  readonly server: StoreServer;
  /** What the production code draws from. */
  readonly random: Random;
  /** What all replicas record with: they hold the same key. */
  readonly recorder: EvidenceRecorder;
  readonly busRandom: Random;
  readonly faultDice: Dice;
  readonly clientDice: Dice;
  /** The user of each life, by its number. */
  readonly userOfLife = new Map<number, string>();
  /** Nothing goes wrong any more. */
  calm = false;
  failure: string | undefined;
  private readonly promises = new Promises();
  private outstanding = 0;

  /** With `answersOnly` nothing is looked at that clients cannot see. */
  constructor(
    seed: number,
    readonly settings: Settings,
    readonly answersOnly: boolean,
  ) {
    const sources = seededRandom(seed ^ 0x5eed);
    const next = (): number => Math.floor(sources.fraction() * 2 ** 32);
    this.random = seededRandom(next());
    this.busRandom = seededRandom(next());
    this.faultDice = new Dice(next());
    this.clientDice = new Dice(next());
    const database = new SimulatedDatabase(this.storeTime, this.random, settings.pageMax);
    this.server = new StoreServer(database, this.clock, new Dice(next()), settings.weather);
    this.recorder = simulatedRecorder(this.clock, seededRandom(next()));
    if (settings.upgrades) database.writeFormat = 1;
    this.replicas = Array.from(
      { length: settings.replicas },
      (_, index) => new SimulatedReplica(`r${index + 1}`, this),
    );
  }

  /** The first thing that went wrong ends the run. */
  fail(reason: string): void {
    if (this.failure !== undefined) return;
    this.failure = reason;
    this.trace.note(`FAILED: ${reason}`);
  }

  get pendingCount(): number {
    return this.outstanding;
  }

  /** One call of a client; `life` is the device's that it concerns, 0 for all of them. */
  async call(life: number, replica: SimulatedReplica, asked: Asked): Promise<Answer> {
    const call = this.history.begin(life, replica, asked, this.clock.monotonicMs());
    const { kind, ...rest } = asked;
    this.trace.note(`#${call.number} ${replica.name} ${kind} ${shorten(rest)}`);
    const heldMs = replica.heldMs();
    this.outstanding += 1;
    const answer = await replica.ask(asked);
    this.outstanding -= 1;
    call.answer = answer;
    if (replica.actorThread !== call.actorThread) call.actorThread = 0;
    call.endedMs = this.clock.monotonicMs();
    this.noteAnswer(call);
    const broken = this.promises.broken(call, replica.heldMs() - heldMs);
    if (broken !== undefined) this.fail(`${broken}: ${describeCall(call)}`);
    this.checkView(replica);
    return answer;
  }

  /** Only of one history: after a restore, the same ids may stand for something else. */
  private checkView(replica: SimulatedReplica): void {
    if (this.answersOnly) return;
    const unproved = this.server.database.evidenceLog.fault;
    if (unproved !== undefined) this.fail(unproved);
    if (this.history.lastRestoreMs > 0) return;
    const fault = this.server.database.log.faultOf(replica.devicesView());
    if (fault !== undefined) this.fail(`${replica.name} is wrong: ${fault}`);
  }

  takeBackup(): void {
    this.trace.note('a backup of the store is taken');
    this.server.takeBackup();
    this.history.turns.push({ kind: 'backup', atMs: this.clock.monotonicMs() });
  }

  restore(): void {
    this.trace.note('the store comes back as the backup has it');
    const nowMs = this.clock.monotonicMs();
    this.server.startRestored();
    this.promises.restored(nowMs);
    this.history.turns.push({ kind: 'restore', atMs: nowMs });
  }

  becomeCalm(): void {
    this.trace.note('from now on nothing goes wrong');
    this.calm = true;
    this.server.weather = CALM;
  }

  private noteAnswer({ number, answer }: Call): void {
    if (!answer) return;
    this.trace.note(`#${number} → ${'code' in answer ? answer.code : shorten(answer.value)}`);
  }
}
