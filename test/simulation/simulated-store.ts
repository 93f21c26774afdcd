/**
 * The model store as a server that one reaches over a network: slow, down, restored, out of reach,
 * cut off before or after a commit. What the data is remains the model's.
 */
import { DEVICES_STREAM } from '../../src/actors/devices/state.js';
import { GATEWAYS_STREAM } from '../../src/actors/gateways/state.js';
import { type Clock, delay } from '../../src/runtime/clock.js';
import type { Random } from '../../src/runtime/random.js';
import { type ModelBackup, ModelDatabase } from '../../src/storage/model/model-database.js';
import {
  type ModelHooks,
  type ModelOperation,
  ModelStore,
} from '../../src/storage/model/model-store.js';
import type {
  CatchUp,
  Changes,
  Committed,
  Locked,
  Position,
  StoredRecord,
  UnitOfWork,
} from '../../src/storage/store.js';
import { StoreError } from '../../src/storage/store-error.js';
import type { Dice } from './dice.js';
import { EvidenceLog } from './evidence-check.js';
import type { StoreWeather } from './settings.js';
import { DevicesLog } from './view-check.js';

/** A name with this in it is refused by the store, as text that a database cannot hold is. */
export const UNSTORABLE = 'unstorable';

/** The data, read in pages of the run's size; everything written is noted beside it. */
export class SimulatedDatabase extends ModelDatabase {
  readonly log = new DevicesLog();
  readonly evidenceLog = new EvidenceLog();

  constructor(
    clock: Clock,
    random: Random,
    private readonly pageMax: number,
  ) {
    super(clock, random);
  }

  override catchUp(position: Position, limit = this.pageMax): CatchUp {
    return super.catchUp(position, limit);
  }

  override commit(unit: UnitOfWork, decide: (locked: Locked) => Changes): Committed {
    let changes: Changes = {};
    const committed = super.commit(unit, (locked) => {
      changes = decide(locked);
      return changes;
    });
    this.log.note(committed.records);
    this.evidenceLog.note(changes);
    return committed;
  }

  override restore(backup: ModelBackup): void {
    super.restore(backup);
    const records: StoredRecord[] = [];
    this.replay([DEVICES_STREAM, GATEWAYS_STREAM], (page) => void records.push(...page));
    this.evidenceLog.restored(records);
  }
}

/** The server: its data, its weather, and whether it runs. */
export class StoreServer {
  down = false;
  private backup: ModelBackup | undefined;

  constructor(
    readonly database: SimulatedDatabase,
    readonly clock: Clock,
    readonly dice: Dice,
    public weather: StoreWeather,
  ) {}

  stop(): void {
    this.down = true;
  }

  /** With all the data that it had. */
  start(): void {
    this.down = false;
    this.database.restart();
  }

  takeBackup(): void {
    this.backup = this.database.remember();
  }

  get hasBackup(): boolean {
    return this.backup !== undefined;
  }

  /** With the data of the backup. */
  startRestored(): void {
    if (this.backup === undefined) throw new Error('there is no backup');
    this.down = false;
    this.database.restore(this.backup);
  }
}

/** What a thread of a process must provide so that the store's answers reach it. */
export interface StoreClient {
  /** The thread's own clock: nothing reaches it while it is held. */
  readonly clock: Clock;
  /** Whether the weather's late answers are its. */
  readonly late: boolean;
  /** The thread's process is stopped for a while. */
  pause(): void;
  /** A bug has to happen now and then; not so often that the process must give up. */
  mayHaveBug(): boolean;
}

/** One thread's connection. */
export class SimulatedStore extends ModelStore {
  constructor(
    private readonly server: StoreServer,
    client: StoreClient,
  ) {
    super(server.database, hooksOf(server, client));
  }

  override commit(unit: UnitOfWork, decide: (locked: Locked) => Changes): Promise<Committed> {
    const { dice } = this.server;
    return super.commit(unit, (locked) => {
      const changes = decide(locked);
      if (changes.appends?.some(({ body }) => body.includes(UNSTORABLE))) {
        throw new StoreError('write_refused', 'A text cannot be stored.');
      }
      if (dice.chance(this.server.weather.breakChance)) throw unavailable();
      return changes;
    });
  }
}

function hooksOf(server: StoreServer, client: StoreClient): ModelHooks {
  const { dice } = server;
  const before = async (operation: ModelOperation): Promise<void> => {
    // A read that was sent is read also when its sender is stopped; a commit is decided there.
    await delay(operation === 'commit' ? client.clock : server.clock, wayMs(server));
    if (server.down || dice.chance(server.weather.refuseChance)) throw unavailable();
    if (operation === 'catchUp' && dice.chance(server.weather.bugChance) && client.mayHaveBug()) {
      throw new TypeError('a bug that the simulation made');
    }
  };
  const after = async (operation: ModelOperation): Promise<void> => {
    if (dice.chance(server.weather.pauseAfterChance)) client.pause();
    await delay(client.clock, wayMs(server) + (client.late ? lateMs(server) : 0));
    if (!server.down && !dice.chance(server.weather.loseChance)) return;
    if (operation !== 'commit') throw unavailable();
    throw new StoreError('outcome_unknown', 'The connection broke during the commit.');
  };
  const atOnce = (operation: ModelOperation): boolean =>
    operation === 'catchUp' && server.weather.synchronousCatchUps;
  return {
    before: (operation) => {
      if (!atOnce(operation)) return before(operation);
      if (server.down) throw unavailable();
    },
    after: (operation) => (atOnce(operation) ? undefined : after(operation)),
  };
}

/** One way over the network, with whatever the server does on it. */
function wayMs({ dice, weather }: StoreServer): number {
  if (dice.chance(weather.slowChance)) return dice.between(0, weather.slowMaxMs);
  return dice.between(0, weather.delayMaxMs);
}

function lateMs({ dice, weather }: StoreServer): number {
  return dice.chance(weather.lateChance) ? dice.between(0, weather.lateMaxMs) : 0;
}

function unavailable(): StoreError {
  return new StoreError('store_unavailable', 'The store cannot be reached.');
}
