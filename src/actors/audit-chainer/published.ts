/** What was published binds: whether the chain still has the checkpoints that were given out. */
import { CodedError } from '../../runtime/failure.js';
import type { EvidenceStore } from '../../storage/evidence-store.js';
import type { PublishedCheckpoints } from '../../storage/published-checkpoints.js';

/** The range that a restore lost: see `LostRange`. */
export interface Rewound {
  readonly fromSeq: number;
  readonly toSeq: number;
  readonly toHash: string;
}

/** The lost range when the chain lacks a checkpoint that was published; else undefined. */
export async function rewound(
  store: EvidenceStore,
  published: PublishedCheckpoints,
): Promise<Rewound | undefined> {
  const checkpoints = await published.read();
  const newest = checkpoints.at(-1);
  if (newest === undefined || (await has(store, newest.seq, newest.hash))) return undefined;
  const head = await store.head();
  let fromSeq = 1;
  for (const { seq, hash } of checkpoints.slice(0, -1)) {
    if (await has(store, seq, hash)) fromSeq = seq + 1;
  }
  return {
    fromSeq: Math.min(Math.max(fromSeq, 1), Math.max(head.seq, 0) + 1),
    toSeq: newest.seq,
    toHash: newest.hash,
  };
}

/** `chain_rewound`: what an operator has to accept before anything is chained again. */
export function chainRewound({ fromSeq, toSeq }: Rewound): CodedError {
  const message =
    `the chain lacks the published checkpoint ${toSeq}; records from ${fromSeq} on may be lost: ` +
    'restore them, or run `halo audit accept-restore`';
  return new CodedError('chain_rewound', message);
}

async function has(store: EvidenceStore, seq: number, hash: string): Promise<boolean> {
  const [record] = await store.page(seq - 1, 1);
  return record?.seq === seq && record.hash === hash;
}
