/** Canonical JSON: the writer's and the verifier's, which share no code, agree. */
import fc from 'fast-check';
import t from 'tap';
import { canonicalJson } from '../src/evidence/canonical-json.js';
import { DEPTH_MAX } from '../src/evidence/format.js';
import { canonicalForm, type JsonValue } from '../src/verify/canonical-form.js';

const seed = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
t.comment(`seed ${seed}`);

const jsonValue = fc.jsonValue({
  maxDepth: 6,
  noUnicodeString: false,
} as never) as fc.Arbitrary<any>;

/** The same value with the names of every object in another order. */
function shuffled(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(shuffled);
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).reverse();
  return Object.fromEntries(members.map(([name, member]) => [name, shuffled(member)]));
}

t.test('the writer and the verifier make the same text of any value', async () => {
  fc.assert(
    fc.property(jsonValue, (value) => canonicalJson(value) === canonicalForm(value, DEPTH_MAX)),
    { seed, numRuns: 2000 },
  );
});

t.test('a canonical text reads back as the same value, whatever the order of names', async (t) => {
  fc.assert(
    fc.property(jsonValue, (value) => {
      const text = canonicalJson(value);
      const back = JSON.parse(text) as JsonValue;
      return (
        canonicalForm(back, DEPTH_MAX) === text && canonicalJson(shuffled(back) as any) === text
      );
    }),
    { seed, numRuns: 2000 },
  );
  t.equal(canonicalJson({ b: 1, a: 2 }), canonicalJson({ a: 2, b: 1 }));
});

t.test('doubles have the text that RFC 8785 gives for them', async (t) => {
  // Appendix B of the RFC: the bits of a double and its text.
  const examples: ReadonlyArray<readonly [bits: string, text: string]> = [
    ['0000000000000000', '0'],
    ['8000000000000000', '0'],
    ['0000000000000001', '5e-324'],
    ['7fefffffffffffff', '1.7976931348623157e+308'],
    ['4340000000000000', '9007199254740992'],
    ['4430000000000000', '295147905179352830000'],
    ['44b52d02c7e14af6', '1e+23'],
    ['41b3de4355555555', '333333333.3333333'],
    ['becbf647612f3696', '-0.0000033333333333333333'],
    ['444b1ae4d6e2ef50', '1e+21'],
  ];
  for (const [bits, text] of examples) {
    const value = Buffer.from(bits, 'hex').readDoubleBE();
    t.equal(canonicalJson(value), text);
    t.equal(canonicalForm(value, 1), text);
  }
});

t.test('names are sorted by code units, not by code points or as numbers', async (t) => {
  const value = { '\ufb33': 1, '😀': 2, '10': 3, '9': 4, '': 5, '€': 6 };
  const text = '{"":5,"10":3,"9":4,"€":6,"😀":2,"\ufb33":1}';
  t.equal(canonicalJson(value), text);
  t.equal(canonicalForm({ ...value }, 2), text);
});

t.test('what JSON cannot say is refused and never left out', async (t) => {
  const holed: unknown[] = [1, 2];
  delete holed[0];
  const refused: ReadonlyArray<readonly [name: string, value: unknown]> = [
    ['undefined', { a: undefined }],
    ['a hole', holed],
    ['NaN', [Number.NaN]],
    ['infinity', { a: Infinity }],
    ['a bigint', { a: 1n }],
    ['a symbol', [Symbol('x')]],
    ['a function', { a: () => 1 }],
    ['a date', { at: new Date(0) }],
    ['a map', { a: new Map() }],
    ['a toJSON', { toJSON: () => 'other' }],
    ['a lone surrogate', { a: '\ud800' }],
    ['a lone surrogate in a name', { '\udc00': 1 }],
  ];
  for (const [name, value] of refused) {
    t.throws(() => canonicalJson(value as any), { code: 'evidence_invalid' }, name);
  }
});

t.test('containers nest to the bound and no deeper', async (t) => {
  const nest = (depth: number): any => (depth === 0 ? 'x' : [nest(depth - 1)]);
  t.equal(canonicalForm(nest(DEPTH_MAX), DEPTH_MAX), canonicalJson(nest(DEPTH_MAX)));
  t.throws(() => canonicalJson(nest(DEPTH_MAX + 1)), { code: 'evidence_invalid' });
  t.equal(canonicalForm(nest(DEPTH_MAX + 1), DEPTH_MAX), undefined);
});
