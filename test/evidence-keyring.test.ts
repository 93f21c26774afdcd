/** Signing keys read from PEM text, and what is derived from them. */
import { createHash, createPublicKey, generateKeyPairSync, hkdfSync, verify } from 'node:crypto';
import t from 'tap';
import { KEYS_MAX, parseKeyring, signingKeyPem } from '../src/evidence/keyring.js';

const newPem = (): string => signingKeyPem(() => generateKeyPairSync('ed25519'));

/** The key of RFC 8032 §7.1 test 1, as PKCS 8. */
const RFC_SEED = '9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60';
const RFC_PUBLIC = 'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a';
const RFC_PEM = `-----BEGIN PRIVATE KEY-----\n${Buffer.from(
  `302e020100300506032b657004220420${RFC_SEED}`,
  'hex',
).toString('base64')}\n-----END PRIVATE KEY-----\n`;

t.test('a PEM block becomes a key whose id is the hash of its public half', async (t) => {
  const { current } = parseKeyring(RFC_PEM);
  const publicKey = Buffer.from(RFC_PUBLIC, 'hex');
  t.equal(Buffer.from(current.publicKey).toString('hex'), RFC_PUBLIC);
  t.equal(current.id, createHash('sha256').update(publicKey).digest('hex').slice(0, 32));
});

t.test('a key signs as RFC 8032 says and verifies only its own signatures', async (t) => {
  const { current } = parseKeyring(RFC_PEM);
  const signature = current.sign(new Uint8Array());
  t.equal(
    Buffer.from(signature).toString('hex'),
    'e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555' +
      'fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b',
  );
  t.equal(current.verify(new Uint8Array(), signature), true);
  t.equal(current.verify(Buffer.from('x'), signature), false);
  t.equal(parseKeyring(newPem()).current.verify(new Uint8Array(), signature), false);
});

t.test('derived secrets are HKDF-SHA256 of the seed, one for each label', async (t) => {
  const keyring = parseKeyring(RFC_PEM);
  const { keyId, secret } = keyring.derive('idempotency');
  const expected = hkdfSync('sha256', Buffer.from(RFC_SEED, 'hex'), '', 'idempotency', 32);
  t.equal(Buffer.from(secret).toString('hex'), Buffer.from(expected).toString('hex'));
  t.equal(keyId, keyring.current.id);
  t.not(
    Buffer.from(keyring.derive('other').secret).toString('hex'),
    Buffer.from(secret).toString('hex'),
  );
  t.same(parseKeyring(RFC_PEM).derive('idempotency').secret, secret, 'the same on each replica');
});

t.test('a file may hold several keys, and the chain chooses among them', async (t) => {
  const [one, two] = [newPem(), newPem()];
  const keyring = parseKeyring(`old key\n${one}\nnew key\n${two}`);
  const second = parseKeyring(two).current;
  t.equal(keyring.keys.length, 2);
  t.equal(keyring.current.id, parseKeyring(one).current.id, 'the first until told otherwise');
  const selected = keyring.select(second.id);
  t.equal(selected.current.id, second.id);
  t.same(selected.derive('x').secret, second.derive('x'));
  t.equal(selected.find(keyring.current.id)?.id, keyring.current.id, 'the other is still held');
  t.equal(keyring.find('0'.repeat(32)), undefined);
  t.throws(() => keyring.select('0'.repeat(32)), { code: 'signing_key_missing' });
});

t.test('a new key is PKCS 8 PEM that others can read', async (t) => {
  const pem = newPem();
  t.match(pem, /^-----BEGIN PRIVATE KEY-----\n/);
  const message = Buffer.from('hello');
  const signature = parseKeyring(pem).current.sign(message);
  t.equal(verify(null, message, createPublicKey(pem), signature), true);
});

t.test('a file that cannot be used says which block and nothing of it', async (t) => {
  const pem = newPem();
  const body = pem.split('\n')[1]!;
  const { privateKey } = generateKeyPairSync('ed25519');
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  const encrypted = privateKey.export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase: 'x',
  });
  const refused: ReadonlyArray<readonly [string, string, RegExp]> = [
    ['empty', '', /no PEM block/],
    ['not PEM', body, /no PEM block/],
    ['cut short', pem.slice(0, -10), /no PEM block/],
    ['second one cut short', `${pem}${pem.slice(0, 60)}`, /cut short/],
    ['damaged', pem.replace(body, body.slice(0, -8)), /block 1 is not an unencrypted PKCS 8/],
    ['encrypted', encrypted.toString(), /block 1 is not an unencrypted PKCS 8/],
    [
      'a public key',
      createPublicKey(pem).export({ type: 'spki', format: 'pem' }).toString(),
      /block 1/,
    ],
    [
      'another algorithm',
      `${pem}${ec.export({ type: 'pkcs8', format: 'pem' }).toString()}`,
      /block 2 is not an Ed25519/,
    ],
    ['the same twice', pem + pem, /same key twice/],
    ['too many', Array.from({ length: KEYS_MAX + 1 }, newPem).join(''), /more than/],
  ];
  for (const [name, text, message] of refused) {
    t.throws(() => parseKeyring(text), { code: 'signing_key_invalid', message }, name);
    try {
      parseKeyring(text);
    } catch (error) {
      t.notMatch(String(error), new RegExp(body.slice(0, 12).replaceAll('+', '\\+')), name);
      t.equal((error as Error).cause, undefined, 'nor does a cause');
    }
  }
});
