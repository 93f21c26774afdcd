/** How a device gets in: an administrator mints a token, the device enrols with it once. */
import { optional } from 'superstruct';
import { digestOf, isWellFormedSecret } from '../../actors/secrets.js';
import { enrolledBody, enrolledDevice } from '../device-shapes.js';
import { enrollmentProofMessage } from '../ed25519-proof.js';
import { HttpProblem } from '../problem-details.js';
import { adminName, askingProblems, defineRoute, type Route } from '../route.js';
import {
  base64urlBytes,
  fields,
  integerBetween,
  name,
  opaque,
  time,
  timeText,
  userName,
} from '../schema.js';
import { fieldProblem } from '../validation.js';

/** A day: long enough to hand a token over, short enough that a forgotten one is no risk. */
const TOKEN_TTL_SECONDS_MAX = 86_400;
/** An hour: what a person who sets up a device at once needs. */
const TOKEN_TTL_SECONDS_DEFAULT = 3600;
/** Longer than any token of ours, so that a wrong one is answered as wrong and not as malformed. */
const TOKEN_LENGTH_MAX = 256;

const mintToken = defineRoute({
  operationId: 'mintEnrollmentToken',
  summary: 'Mint an enrolment token for a user',
  method: 'POST',
  path: '/api/v1/enrollment-tokens',
  access: 'admin',
  body: {
    struct: fields({
      user: userName(),
      ttlSeconds: optional(
        integerBetween(1, TOKEN_TTL_SECONDS_MAX, 'Lifetime.', TOKEN_TTL_SECONDS_DEFAULT),
      ),
    }),
    optional: false,
  },
  answers: [
    {
      status: 201,
      description: 'The token; it is shown this once.',
      body: fields({ token: opaque(TOKEN_LENGTH_MAX, 'The token.'), expiresAt: time('Its end.') }),
    },
  ],
  problems: [...askingProblems('mutation'), 'replay_superseded'],
  caching: 'no-store',
  handle: async (call, { devices }) => {
    const by = adminName(call.caller);
    const idempotency = call.idempotency(`admin:${by}`);
    const minted = await devices.mintToken({
      user: call.body.user,
      ttlSeconds: call.body.ttlSeconds ?? TOKEN_TTL_SECONDS_DEFAULT,
      by,
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    return {
      status: 201,
      body: { token: minted.token, expiresAt: timeText(minted.expiresAtMs) },
    };
  },
});

const voidTokens = defineRoute({
  operationId: 'voidEnrollmentTokens',
  summary: 'Void every enrolment token of a user that is not spent',
  method: 'POST',
  path: '/api/v1/enrollment-tokens/void',
  access: 'admin',
  body: { struct: fields({ user: userName() }), optional: false },
  answers: [
    {
      status: 200,
      description: 'Every token of the user minted at or before this time is void.',
      body: fields({ voidedUpTo: time('Tokens minted up to here are void.') }),
    },
  ],
  problems: askingProblems('mutation'),
  caching: 'no-store',
  handle: async (call, { devices }) => {
    const by = adminName(call.caller);
    const idempotency = call.idempotency(`admin:${by}`);
    const voided = await devices.voidTokens({
      user: call.body.user,
      by,
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    return { status: 200, body: { voidedUpTo: timeText(voided.voidedUpToMs) } };
  },
});

const ED25519_KEY_BYTES = 32;
const ED25519_SIGNATURE_BYTES = 64;

const enroll = defineRoute({
  operationId: 'enroll',
  summary: 'Enrol a device with a token',
  method: 'POST',
  path: '/api/v1/enroll',
  access: 'enrollment-token',
  body: {
    struct: fields({
      token: opaque(TOKEN_LENGTH_MAX, 'The enrolment token.'),
      name: name('What the device is called.'),
      platform: name('Such as `linux`.'),
      deviceKey: optional(
        base64urlBytes(ED25519_KEY_BYTES, 'A raw Ed25519 public key, for retries; with `proof`.'),
      ),
      proof: optional(
        base64urlBytes(
          ED25519_SIGNATURE_BYTES,
          'The key’s signature over `halo-enroll-v1`, a line feed and the token.',
        ),
      ),
    }),
    optional: false,
  },
  answers: [
    {
      status: 201,
      description: 'The device and its credential, which is shown this once.',
      body: fields({
        device: enrolledDevice,
        credential: opaque(TOKEN_LENGTH_MAX, 'The device’s credential.'),
      }),
    },
  ],
  problems: [
    ...askingProblems('mutation'),
    'enrollment_token_invalid',
    'too_many_failures',
    'replay_superseded',
  ],
  caching: 'no-store',
  handle: async (call, { devices, verifyProof }) => {
    const { token, deviceKey, proof, name, platform } = call.body;
    if (!isWellFormedSecret(token, 'enroll')) {
      throw new HttpProblem('enrollment_token_invalid', {
        detail: 'The token is not an enrolment token, or was cut or mistyped.',
      });
    }
    if (deviceKey === undefined && proof !== undefined) {
      throw fieldProblem('body', '/deviceKey', 'must come with proof');
    }
    if (deviceKey !== undefined && proof === undefined) {
      throw fieldProblem('body', '/proof', 'must come with deviceKey');
    }
    const tokenDigest = digestOf(token);
    const idempotency = call.idempotency(`enrollment:${tokenDigest}`);
    const asked = {
      tokenDigest,
      name,
      platform,
      ...(deviceKey === undefined ? {} : { deviceKey }),
      ...(idempotency === undefined ? {} : { idempotency }),
    };
    // First, so that whoever has no token gets nothing verified, and nothing locked.
    await devices.mayEnroll(asked);
    if (deviceKey !== undefined && proof !== undefined) {
      if (!(await verifyProof(deviceKey, enrollmentProofMessage(token), proof))) {
        throw fieldProblem('body', '/proof', 'must be the signature of deviceKey over the token');
      }
    }
    const enrolled = await devices.enroll(asked);
    return {
      status: 201,
      body: { device: enrolledBody(enrolled.device), credential: enrolled.credential },
    };
  },
});

export const enrollmentRoutes: readonly Route[] = [mintToken, voidTokens, enroll];
