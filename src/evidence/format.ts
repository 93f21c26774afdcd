/**
 * The constants of the evidence format, and nothing else: the writer (this folder) and the verifier
 * (`src/verify`) share them and no code. `docs/evidence.md` specifies what they mean; a change of
 * one that is hashed or signed is a new version. No constant carries the product's name (ADR-0006).
 */

/** The version of events and records that this binary writes; readers know exactly this one. */
export const EVIDENCE_VERSION = 1;

/** Before the canonical record when it is hashed, so that no other hash can pass for a record's. */
export const HASH_PREFIX = 'evidence-record-v1\n';
/** Before what the next key signs in a rotation, so that no record's hash can pass for it. */
export const ROTATION_PREFIX = 'evidence-rotation-v1\n';
/** Before what the outbox's MAC covers. */
export const OUTBOX_PREFIX = 'evidence-outbox-v1\n';
/** Before a masked value when its HMAC is made. */
export const MASK_PREFIX = 'evidence-mask-v1\n';

/** The `prev_hash` of record 0: nothing hashes to it. */
export const GENESIS_PREV_HASH = '0'.repeat(64);

/** Kinds that begin so are statements of the chain about itself; no decider writes them. */
export const CHAIN_KIND_PREFIX = 'chain.';
/** Record 0: names the algorithms and the first public key. */
export const KIND_GENESIS = 'chain.started';
/** Covers all records before it, and is published. */
export const KIND_CHECKPOINT = 'chain.checkpoint';
/** Introduces the key that signs everything after it. */
export const KIND_KEY_ROTATED = 'chain.key_rotated';
/** Names a range that was published once and is lost: a restore that an operator accepted. */
export const KIND_RESTORE_ACCEPTED = 'chain.restore_accepted';

/** What record 0 says of signatures and hashes; another value is another version. */
export const GENESIS_ALGORITHMS = { hash: 'sha-256', signature: 'ed25519' } as const;

/** The fields of an event, in canonical order. */
export const EVENT_FIELDS = ['at', 'by', 'data', 'kind', 'masked', 'ref', 'v'] as const;
/** The fields of a record, in canonical order. All are obligatory and there are no others. */
export const RECORD_FIELDS = [
  'at',
  'by',
  'chained_at',
  'data',
  'hash',
  'key_id',
  'kind',
  'masked',
  'prev_hash',
  'ref',
  'seq',
  'sig',
  'v',
] as const;

/** `ev_` and a UUID in lower case. All digits would mean a `seq`. */
export const REF_PATTERN = /^ev_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** Dotted lower-case words, such as `device.revoked`. */
export const KIND_PATTERN = /^[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)*$/;
/** A kind is a label in metrics and filters too: nobody needs more. */
export const KIND_CHARACTERS_MAX = 64;
/** RFC 3339 in UTC with milliseconds, the only form of a time. */
export const TIME_PATTERN = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;
/** SHA-256 in lower-case hexadecimal. */
export const HASH_PATTERN = /^[0-9a-f]{64}$/;
/** An Ed25519 signature in lower-case hexadecimal: no two texts for the same bytes. */
export const SIGNATURE_PATTERN = /^[0-9a-f]{128}$/;
/** An Ed25519 public key in lower-case hexadecimal. */
export const PUBLIC_KEY_PATTERN = /^[0-9a-f]{64}$/;
/** The first half of SHA-256 of the raw public key, in lower-case hexadecimal. */
export const KEY_ID_PATTERN = /^[0-9a-f]{32}$/;
/** Characters of a key's id. */
export const KEY_ID_CHARACTERS = 32;

/** The largest event, in bytes of its canonical UTF-8: what one decision may take in the chain. */
export const EVENT_BYTES_MAX = 262_144;
/** What chaining adds to an event: names, two hashes, a signature, a number, a time: 443 bytes. */
export const RECORD_OVERHEAD_BYTES_MAX = 1024;
/** The longest line of an export, without its line end. */
export const RECORD_BYTES_MAX = EVENT_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX;
/** How deep an event may nest, itself included: deeper than a request, far from a stack's end. */
export const DEPTH_MAX = 32;

/** A checkpoint at the latest after so many records: a verifier never trusts a longer tail. */
export const CHECKPOINT_RECORDS_MAX = 1_000;
/** A checkpoint at the latest after so long, when there is anything new to cover: an hour. */
export const CHECKPOINT_AGE_MAX_MS = 3_600_000;

/** The name of a segment of a chain in a directory: the `seq` of its first record, 16 digits. */
export const SEGMENT_NAME_PATTERN = /^\d{16}\.jsonl$/;
