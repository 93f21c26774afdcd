/**
 * The masking profile that holds when an operator names none: secrets by the names that people give
 * them, and by the forms in which they are handed out.
 */
import type { FieldRule, MaskingProfile, PatternRule } from './masking.js';

const SECRET_NAMES = [
  'authorization',
  'proxyAuthorization',
  'cookie',
  'setCookie',
  '*password',
  '*passwd',
  '*passphrase',
  '*secret',
  '*token',
  '*apiKey',
  '*accessKey',
  '*privateKey',
  '*credential',
] as const;

/**
 * Each is linear: it begins where a run of its characters begins and is bounded, or it cannot meet
 * its own beginning again before it ends. They recognise, since these secrets cannot be guessed,
 * and since a resource that only looks like one must stay distinguishable from another.
 */
const SECRET_FORMS: ReadonlyArray<readonly [name: string, pattern: string]> = [
  ['secrets of this server', 'halo_[a-z]{1,16}_[0-9A-Za-z]{49}'],
  ['bearer tokens', '(?<![A-Za-z0-9])[Bb]earer[ \\t]{1,8}[A-Za-z0-9._~+/=-]{8,8192}'],
  [
    'JSON web tokens',
    '(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,8192}\\.[A-Za-z0-9_-]{8,8192}\\.[A-Za-z0-9_-]{0,8192}',
  ],
  [
    'private keys',
    '-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[^]*?(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|$)',
  ],
  ['passwords in addresses', '(?<=://)[^\\s/@:]{1,256}:[^\\s/@]{1,256}(?=@)'],
  ['AWS access keys', '(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])'],
  [
    'GitHub tokens',
    '(?<![A-Za-z0-9_])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})',
  ],
  ['Slack tokens', '(?<![A-Za-z0-9])xox[abprs]-[A-Za-z0-9-]{10,255}'],
  ['keys of model providers', '(?<![A-Za-z0-9_-])sk-[A-Za-z0-9_-]{20,255}'],
];

/** Secrets by name are removed; secrets by form leave an HMAC. */
export const DEFAULT_MASKING: MaskingProfile = {
  name: 'default',
  fields: SECRET_NAMES.map((field): FieldRule => ({ field, treatment: 'remove' })),
  patterns: SECRET_FORMS.map(
    ([name, pattern]): PatternRule => ({ name, pattern, treatment: 'recognise' }),
  ),
};
