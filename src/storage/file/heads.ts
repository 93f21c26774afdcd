/**
 * The newest record of each stream, the epoch and the store's clock in shared memory: written by
 * the storage thread before it answers a commit, read by every actor thread before each decision.
 * So a catch-up that brings nothing costs no message.
 */
import type { Cursor } from '../store.js';

/** Streams with a place in shared memory; a stream beyond is always asked for. 16 KB. */
export const SHARED_STREAMS_MAX = 1_000;

const EPOCH = 0;
const CLOCK = 1;
const FIRST_STREAM = 2;
const WORDS_PER_STREAM = 2;
/** Of one stream. */
const ID = 0;
const BATCH = 1;

export const NO_CURSOR: Cursor = { id: 0, batch: '' };

/** Made once by the storage thread, and handed to every actor thread. */
export function makeSharedHeads(): SharedArrayBuffer {
  return new SharedArrayBuffer(
    (FIRST_STREAM + SHARED_STREAMS_MAX * WORDS_PER_STREAM) * BigInt64Array.BYTES_PER_ELEMENT,
  );
}

/** 16 hex digits as a signed word; '' is 0. */
function wordOf(hex: string): bigint {
  return hex === '' ? 0n : BigInt.asIntN(64, BigInt(`0x${hex}`));
}

/** The storage thread's side. */
export class HeadsWriter {
  private readonly words: BigInt64Array;
  private readonly slots = new Map<string, number>();
  private readonly heads = new Map<string, Cursor>();

  constructor(shared: SharedArrayBuffer) {
    this.words = new BigInt64Array(shared);
  }

  setEpoch(epoch: string): void {
    Atomics.store(this.words, EPOCH, wordOf(epoch));
  }

  setClock(nowMs: number): void {
    Atomics.store(this.words, CLOCK, BigInt(Math.trunc(nowMs)));
  }

  get(stream: string): Cursor {
    return this.heads.get(stream) ?? NO_CURSOR;
  }

  set(stream: string, head: Cursor): void {
    this.heads.set(stream, head);
    const slot = this.slots.get(stream);
    if (slot !== undefined) this.write(slot, head);
  }

  all(): ReadonlyMap<string, Cursor> {
    return this.heads;
  }

  /** The place of a stream in shared memory; undefined when all are taken. */
  slot(stream: string): number | undefined {
    const known = this.slots.get(stream);
    if (known !== undefined || this.slots.size === SHARED_STREAMS_MAX) return known;
    const slot = this.slots.size;
    this.slots.set(stream, slot);
    this.write(slot, this.get(stream));
    return slot;
  }

  private write(slot: number, head: Cursor): void {
    const at = FIRST_STREAM + slot * WORDS_PER_STREAM;
    // Batch first: a reader between the two sees a mismatch, never a false match, and asks.
    Atomics.store(this.words, at + BATCH, wordOf(head.batch));
    Atomics.store(this.words, at + ID, BigInt(head.id));
  }
}

/** An actor thread's side. */
export class HeadsReader {
  private readonly words: BigInt64Array;
  private readonly slots = new Map<string, number>();
  private epochWord: bigint | undefined;
  private epochText = '';
  /** The word of the batch text that was compared last, by stream. */
  private readonly batchWords = new Map<string, { readonly text: string; readonly word: bigint }>();

  constructor(shared: SharedArrayBuffer) {
    this.words = new BigInt64Array(shared);
  }

  learn(slots: Readonly<Record<string, number>>): void {
    for (const [stream, slot] of Object.entries(slots)) this.slots.set(stream, slot);
  }

  epoch(): string {
    const word = Atomics.load(this.words, EPOCH);
    if (word !== this.epochWord) {
      this.epochWord = word;
      this.epochText = BigInt.asUintN(64, word).toString(16).padStart(16, '0');
    }
    return this.epochText;
  }

  /** The store's clock is never behind this. */
  clockMs(): number {
    return Number(Atomics.load(this.words, CLOCK));
  }

  /** True when the stream has nothing after the cursor; false also when it is not known here. */
  isAt(stream: string, cursor: Cursor): boolean {
    const slot = this.slots.get(stream);
    if (slot === undefined) return false;
    const at = FIRST_STREAM + slot * WORDS_PER_STREAM;
    if (Atomics.load(this.words, at + ID) !== BigInt(cursor.id)) return false;
    return Atomics.load(this.words, at + BATCH) === this.batchWord(stream, cursor.batch);
  }

  private batchWord(stream: string, text: string): bigint {
    const known = this.batchWords.get(stream);
    if (known?.text === text) return known.word;
    // A batch that is not ours at all cannot be a word; it matches nothing, and the store is asked.
    const word = /^([0-9a-f]{16})?$/.test(text) ? wordOf(text) : -1n;
    this.batchWords.set(stream, { text, word });
    return word;
  }
}
