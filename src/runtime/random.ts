/** Randomness and ids, injected like the clock: the one module that draws from the system. */
import { randomBytes } from 'node:crypto';

/** Where all randomness comes from; whoever is given a seeded one can be replayed. */
export interface Random {
  /** `count` random bytes, fit for secrets from the system source. */
  bytes(count: number): Uint8Array;
  /** A number in [0, 1), for jitter and sampling; not for secrets. */
  fraction(): number;
}

/** Ids and marks take 8 or 16: a call of the system for each costs more than the rest of it. */
const POOL_BYTES = 4_096;
/** Longer ones are secrets, which are rare and are never drawn ahead. */
const POOLED_BYTES_MAX = 16;
let pool: Buffer = Buffer.alloc(0);

/** The system's own sources, for everything but simulations and seeded tests. */
export const systemRandom: Random = {
  bytes: (count) => (count <= POOLED_BYTES_MAX ? drawn(count) : randomBytes(count)),
  fraction: () => Math.random(),
};

/** Each byte is given out once, and nothing of the pool is shared with whoever gets it. */
function drawn(count: number): Uint8Array {
  if (pool.length < count) pool = randomBytes(POOL_BYTES);
  const bytes = Uint8Array.prototype.slice.call(pool, 0, count);
  pool = pool.subarray(count);
  return bytes;
}

/**
 * A reproducible source for simulations and seeded tests (mulberry32): the same seed gives the same
 * run. Never for secrets.
 */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  const fraction = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  return {
    fraction,
    bytes: (count) => Uint8Array.from({ length: count }, () => Math.floor(fraction() * 256)),
  };
}

/** A UUID version 7 (RFC 9562 §5.7) in lower case: 48 bits of `wallMs`, then random bits. */
export function uuidV7(random: Random, wallMs: number): string {
  const bytes = Buffer.from(random.bytes(16));
  bytes.writeUIntBE(wallMs, 0, 6);
  bytes.writeUInt8(0x70 | (bytes.readUInt8(6) & 0x0f), 6);
  bytes.writeUInt8(0x80 | (bytes.readUInt8(8) & 0x3f), 8);
  const hex = bytes.toString('hex');
  const timeAndVersion = `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}`;
  return `${timeAndVersion}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
