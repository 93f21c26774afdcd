/**
 * What administrative acts are recorded as: the kinds, who they are by, and what they say. The
 * table in `docs/evidence-kinds.md` says the same and is tested equal to it. A kind and its fields
 * are for ever: records of it are in chains. Whatever does not apply is null, never absent.
 */
import type { Json } from '../evidence/canonical-json.js';
import type { Party } from '../evidence/event.js';

/** One kind, for people. */
interface ActKind {
  readonly when: string;
  /** Types of party, as they stand in `by.type`. */
  readonly by: readonly string[];
  /** Each field of `data`. No field may hold a secret, nor a digest of something guessable. */
  readonly data: Readonly<Record<string, string>>;
}

const DEVICE = 'its id';
const USER = 'whose it is';
const GATEWAY = 'its id';
const GATEWAY_NAME = 'what people call it';
const TARGET = '`kind` and `id`';
const VERSION = 'the list’s version that this made';
const EPOCH = 'the history that versions belong to';
const KILL = 'the entry that ended: `reason`, `by`, `at`, `expiresAt`';
const MINTED_IN = 'ref of the `enrollment-token.minted`, by which the token is known';
const OLD_UNTIL = 'until when the old one works; null: it ended at once';

/** Every kind that actors record acts as; statements of the chain are `docs/evidence.md`'s. */
export const ACT_KINDS = {
  'enrollment-token.minted': {
    when: 'An enrolment token was made. Its ref is what the token is known by from then on.',
    by: ['admin'],
    data: { user: 'who may enrol a device with it', expiresAt: 'its end' },
  },
  'enrollment-token.reissued': {
    when: 'The same call was sent again: the token of its first answer was replaced.',
    by: ['admin'],
    data: { user: 'who may enrol a device with it', expiresAt: 'its end', mintedIn: MINTED_IN },
  },
  'enrollment-tokens.voided': {
    when: 'All enrolment tokens of a user were voided.',
    by: ['admin'],
    data: { user: 'whose', voidedUpTo: 'tokens minted up to then are void' },
  },
  'device.enrolled': {
    when: 'A device was let in with an enrolment token.',
    by: ['enrollment-token'],
    data: {
      device: DEVICE,
      user: USER,
      name: 'what it calls itself',
      platform: 'such as `linux`',
      deviceKey: 'its public key, if it showed one; base64url',
    },
  },
  'device.enrolled-again': {
    when: 'The same enrolment was asked for again: the credential it had given was replaced.',
    by: ['enrollment-token'],
    data: { device: DEVICE, user: USER },
  },
  'device.revoked': {
    when: 'A device was shut out for good.',
    by: ['admin'],
    data: { device: DEVICE, user: USER, reason: 'why' },
  },
  'device.rotated': {
    when: 'A device got another credential.',
    by: ['admin', 'device'],
    data: { device: DEVICE, user: USER, oldWorksUntil: OLD_UNTIL },
  },
  'device.reissued': {
    when: 'The same rotation was sent again: the credential of its first answer was replaced.',
    by: ['admin', 'device'],
    data: { device: DEVICE, user: USER },
  },
  'kill-list.killed': {
    when: 'Something was killed, or a kill got another end.',
    by: ['admin'],
    data: {
      target: TARGET,
      reason: 'why',
      expiresAt: 'when it is lifted by itself; null: never',
      replaced: 'the entry before: `reason`, `by`, `at`, `expiresAt`; null: there was none',
      version: VERSION,
      epoch: EPOCH,
    },
  },
  'kill-list.lifted': {
    when: 'A kill was lifted.',
    by: ['admin'],
    data: { target: TARGET, lifted: KILL, version: VERSION, epoch: EPOCH },
  },
  'kill-list.expired': {
    when: 'A kill came to its end.',
    by: ['server'],
    data: { target: TARGET, lifted: KILL, version: VERSION, epoch: EPOCH },
  },
  'gateway.created': {
    when: 'A gateway was made, with a token of its own.',
    by: ['admin'],
    data: { gateway: GATEWAY, name: GATEWAY_NAME },
  },
  'gateway.rotated': {
    when: 'A gateway got another token.',
    by: ['admin'],
    data: { gateway: GATEWAY, name: GATEWAY_NAME, oldWorksUntil: OLD_UNTIL },
  },
  'gateway.reissued': {
    when: 'The same call was sent again: the token of its first answer was replaced.',
    by: ['admin'],
    data: { gateway: GATEWAY, name: GATEWAY_NAME },
  },
  'gateway.removed': {
    when: 'A gateway was shut out for good.',
    by: ['admin'],
    data: { gateway: GATEWAY, name: GATEWAY_NAME },
  },
  'decision.made': {
    when: 'A decision was asked for and made. Its ref is answered, and names its approval too.',
    by: ['gateway', 'device', 'admin'],
    data: {
      principal: '`type` and `id`',
      action: 'the action’s id',
      resource: '`type`, `id` and the attributes that the caller gave',
      context: 'what the caller gave',
      decision: '`allow`, `deny` or `needs_approval`',
      reasons: 'ids of policies, or why no policy decided',
      policy: 'digest of the policy in force; null: there was none',
      approval: 'ref of the approval that it redeems; null: none',
      expiresAt: 'until when it can be approved and redeemed; null: it needs no approval',
    },
  },
  'decision.approved': {
    when: 'A decision that needs approval was approved.',
    by: ['admin'],
    data: { decision: 'its ref', reason: 'why' },
  },
  'decision.denied': {
    when: 'A decision that needs approval was denied.',
    by: ['admin'],
    data: { decision: 'its ref', reason: 'why' },
  },
  'policy.accepted': {
    when: 'A replica found a policy that it accepts: at its start, and when it changed.',
    by: ['server'],
    data: { digest: 'of the policy', policies: 'how many there are in it' },
  },
  'policy.refused': {
    when: 'A replica found a policy that it refuses. The last good one stays in force.',
    by: ['server'],
    data: {
      digest: 'of what was refused; empty: it could not be read',
      inForce: 'digest of the policy that stays; null: there is none',
      issues: 'what is wrong: `severity`, `code`, `file`, `line`, `column`, `message`; 20 at most',
    },
  },
  'leader.step-down-asked': {
    when: 'The holder of a lease was asked to give it back.',
    by: ['admin'],
    data: { lease: 'its name', holder: 'who had it', token: 'of the term that was to end' },
  },
  'server.started': {
    when: 'A replica began to serve.',
    by: ['replica'],
    data: { replica: 'its id', version: 'of the program', backend: '`file` or `postgres`' },
  },
  'server.stopped': {
    when: 'A replica stopped in order. One that was killed leaves none.',
    by: ['replica'],
    data: { replica: 'its id', version: 'of the program', backend: '`file` or `postgres`' },
  },
} as const satisfies Readonly<Record<string, ActKind>>;

/** A kind of `ACT_KINDS`. */
export type ActKindName = keyof typeof ACT_KINDS;

/** All fields of a kind, and no other. */
export type ActData<Kind extends ActKindName> = {
  readonly [Field in keyof (typeof ACT_KINDS)[Kind]['data']]: Json;
};

/** A kind's fields and who did it; when it was, the store's clock says. */
export type Deed<Kind extends ActKindName = ActKindName> = {
  readonly [One in Kind]: { readonly kind: One; readonly by: Party; readonly data: ActData<One> };
}[Kind];

/** What the server does by itself, on whichever replica. */
export const SERVER: Party = { type: 'server', id: 'server' };

/** An admin, by the name of the token that was used. */
export function adminParty(name: string): Party {
  return { type: 'admin', id: name };
}

/** A device that acts for itself. */
export function deviceParty(id: string): Party {
  return { type: 'device', id };
}

/** Named by the ref of its minting; a token from before there was evidence has none. */
export function tokenParty(mintedIn: string | undefined): Party {
  return { type: 'enrollment-token', id: mintedIn ?? 'unknown' };
}

/** What `server.started` and `server.stopped` say, with the program that said it. */
export function replicaDeed(
  kind: 'server.started' | 'server.stopped',
  replica: { readonly id: string; readonly version: string },
  backend: string,
): Deed<'server.started' | 'server.stopped'> {
  const { id, version } = replica;
  return { kind, by: { type: 'replica', id }, data: { replica: id, version, backend } };
}

/** The last moment that a `Date` can say: a test of times may ask for a later one. */
const TIME_MAX_MS = 8.64e15;

/** A time as data says it: RFC 3339, UTC, milliseconds; null where there is none. */
export function actTime(atMs: number | undefined): string | null {
  return atMs === undefined ? null : new Date(Math.min(atMs, TIME_MAX_MS)).toISOString();
}
