/** Which threads a server has, and what each of them is given. */
import { totalmem } from 'node:os';
import type { ActorThreadData } from '../actors/actor-thread.js';
import type { SinkSettings } from '../actors/audit-export/sink-settings.js';
import { ACTOR_NAMES } from '../actors/catalogue.js';
import type { ThreadEvidenceData } from '../actors/thread-evidence.js';
import type { AdminToken } from '../http/authorization.js';
import type { FrontThreadData } from '../http/front-thread.js';
import type { FrontOptions } from '../http/services.js';
import { defaultThreadCounts, placeActors, type ThreadCounts } from '../runtime/placement.js';
import type { ThreadSpec } from '../runtime/supervised-thread.js';
import type { ActorThreadSpec } from '../runtime/supervisor.js';
import { type TermBoardData, termBoardData } from '../runtime/term-board.js';
import type { ServeOptions } from './serve-options.js';
import type { ServerStorage } from './serve-storage.js';

/** So many share the default of `--database-max-conns`; more actors than that are hardly busy. */
const ACTOR_THREADS_DEFAULT_MAX = 6;

/**
 * How many threads a server really has. Reckoned once, before the storage opens: whatever is
 * divided over threads is divided over those that there will be, not over those asked for.
 */
export function serverThreadCounts(
  { frontThreads, actorThreads }: Pick<ServeOptions, 'frontThreads' | 'actorThreads'>,
  cores: number,
): ThreadCounts {
  const fallback = defaultThreadCounts(cores);
  return {
    front: frontThreads ?? fallback.front,
    actors: Math.min(
      actorThreads ?? Math.min(fallback.actors, ACTOR_THREADS_DEFAULT_MAX),
      ACTOR_NAMES.length,
    ),
  };
}

/** What is left for the main thread, buffers outside heaps, and the system. */
const HEAPS_SHARE = 0.75;
/** Below, a thread could not load; above, a collection would take longer than anybody waits. */
const HEAP_MIN_MIB = 256;
const HEAP_MAX_MIB = 4_096;
const BYTES_PER_MIB = 1_048_576;

/**
 * The limit of each thread's heap, so that one that leaks dies by itself and is replaced, before
 * the kernel kills the whole process for the memory of the machine or of the container.
 */
export function threadHeapMaxMib(memoryBytes: number, { front, actors }: ThreadCounts): number {
  const share = Math.floor((memoryBytes * HEAPS_SHARE) / BYTES_PER_MIB / (front + actors));
  return Math.min(HEAP_MAX_MIB, Math.max(HEAP_MIN_MIB, share));
}

/** What this process may use: the machine's memory, or less where a container says so. */
export function usableMemoryBytes(): number {
  const constrained = process.constrainedMemory();
  return constrained > 0 ? Math.min(totalmem(), constrained) : totalmem();
}

/** What every thread is started with, beside what its kind needs. */
export interface ThreadSettings {
  readonly logLevel: string;
  readonly heapMaxMib: number;
}

/** What threads of actors are started with. */
export interface ActorThreadSettings extends ThreadSettings {
  readonly policyDir?: string | null;
  readonly auditSinks?: readonly SinkSettings[];
  /** The leases of the process; none, where nothing is led. */
  readonly terms?: TermBoardData;
}

/**
 * At most `threads` threads that host all actors between them. The first one sweeps as well: more
 * sweepers in one process would only meet the same rows.
 */
export function actorThreadSpecs(
  threads: number,
  storage: ServerStorage,
  evidence: ThreadEvidenceData,
  settings: ActorThreadSettings,
): ActorThreadSpec[] {
  const { logLevel, heapMaxMib, policyDir = null, auditSinks = [] } = settings;
  const { terms = termBoardData([]) } = settings;
  return placeActors(ACTOR_NAMES, threads).map((actors, index) => ({
    name: `actors-${index}`,
    actors,
    entry: new URL('../actors/actor-thread.js', import.meta.url),
    endsItself: false,
    heapMaxMib,
    data: () => {
      const { source, transferList } = storage.storeSource();
      const sweeps = index === 0;
      const common = { sweeps, logLevel, evidence, policyDir, auditSinks, terms };
      const data: ActorThreadData = { actors, store: source, ...common };
      return { data, transferList };
    },
  }));
}

/**
 * `adminTokens` is called at each start: a thread that starts again gets the tokens of that time.
 */
export function frontThreadSpecs(
  threads: number,
  options: Omit<FrontOptions, 'adminTokens'>,
  adminTokens: () => readonly AdminToken[],
  { logLevel, heapMaxMib }: ThreadSettings,
): ThreadSpec[] {
  return Array.from({ length: threads }, (_, index) => ({
    name: `front-${index}`,
    entry: new URL('../http/front-thread.js', import.meta.url),
    endsItself: true,
    heapMaxMib,
    data: () => {
      const data: FrontThreadData = {
        options: { ...options, adminTokens: adminTokens() },
        logLevel,
      };
      return { data };
    },
  }));
}
