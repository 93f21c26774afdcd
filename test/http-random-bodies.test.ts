/** Whatever a body is, the answer is a success or a problem that the route documents. */
import fc from 'fast-check';
import t from 'tap';
import { PROBLEMS, type ProblemCode } from '../src/http/problems.js';
import { problemsOf } from '../src/http/route.js';
import { ROUTES } from '../src/http/routes.js';
import { GOOD_BODIES, pathOf } from './fixtures/http-bodies.js';
import { call } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  CREDENTIAL,
  ENROLLMENT_TOKEN,
  secretsIn,
  startFront,
} from './fixtures/http-front.js';

/** Set HALO_TEST_SEED to the printed seed to see the same bodies again. */
const seed = Number(process.env['HALO_TEST_SEED'] ?? Math.trunc(Math.random() * 0x7fffffff));
const BODIES_PER_ROUTE = 300;

const fieldNames = fc.oneof(
  fc.constantFrom('user', 'ttlSeconds', 'token', 'name', 'platform', 'deviceKey', 'proof'),
  fc.constantFrom(
    'reason',
    'overlapSeconds',
    'expiresAt',
    '__proto__',
    'constructor',
    'toString',
    '',
  ),
  fc.string({ unit: 'binary' }),
);
const values = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.integer({ min: -10, max: 100_000 }),
  fc.constantFrom(ENROLLMENT_TOKEN, CREDENTIAL, ADMIN_TOKEN, 'A'.repeat(43), 'A'.repeat(86)),
  fc.constantFrom({ toString: 1, valueOf: 1 }, { length: -1 }, [[[[]]]]),
);
const plausible = fc
  .array(fc.tuple(fieldNames, values), { maxLength: 6 })
  .map((pairs) => `{${pairs.map(([k, v]) => `${JSON.stringify(k)}:${JSON.stringify(v)}`)}}`);
/** The route's own fields, each good or not, so that successes are reached too. */
function nearlyGood(operationId: string): fc.Arbitrary<Buffer> {
  const good = GOOD_BODIES[operationId] as Record<string, unknown>;
  const fields = Object.entries(good).map(([key, value]) =>
    fc
      .oneof({ weight: 8, arbitrary: fc.constant(value) }, { weight: 1, arbitrary: values })
      .map((chosen) => [key, chosen] as const),
  );
  return fc
    .tuple(...fields)
    .map((pairs) => Buffer.from(JSON.stringify(Object.fromEntries(pairs)), 'utf8'));
}

const anyBodies = fc.oneof(
  { weight: 4, arbitrary: plausible.map((text) => Buffer.from(text, 'utf8')) },
  { weight: 1, arbitrary: fc.json().map((text) => Buffer.from(text, 'utf8')) },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)) },
  {
    weight: 1,
    // JSON with one byte replaced: where parsers differ.
    arbitrary: fc.tuple(plausible, fc.nat(), fc.nat(255)).map(([text, at, byte]) => {
      const bytes = Buffer.from(text, 'utf8');
      bytes[at % bytes.length] = byte;
      return bytes;
    }),
  },
);

t.comment(`HALO_TEST_SEED=${seed}`);

for (const route of ROUTES.filter(({ body }) => body !== undefined)) {
  t.test(`random bodies never break ${route.operationId}`, async (t) => {
    const front = await startFront();
    t.teardown(() => front.close());
    const path = pathOf(route);
    const documented = new Set<string>(problemsOf(route));
    const seen = new Map<string, number>();
    const bodies = fc.oneof(anyBodies, nearlyGood(route.operationId));
    const property = fc.asyncProperty(bodies, async (body) => {
      const answer = await call(front.url, route.method, path, {
        bearer: ADMIN_TOKEN,
        headers: { 'content-type': 'application/json' },
        body,
      });
      const code = answer.json?.code as ProblemCode | undefined;
      seen.set(code ?? 'success', (seen.get(code ?? 'success') ?? 0) + 1);
      if (code === undefined) return answer.status === 200 || answer.status === 201;
      return (
        documented.has(code) &&
        answer.status === PROBLEMS[code].status &&
        answer.status < 500 &&
        secretsIn(answer.text).length === 0
      );
    });
    const result = await fc.check(property, { numRuns: BODIES_PER_ROUTE, seed });
    t.equal(result.failed, false, fc.defaultReportMessage(result) ?? 'none failed');
    t.equal(result.numRuns, BODIES_PER_ROUTE);
    t.equal((await call(front.url, 'GET', '/healthz')).status, 200);
    t.equal(front.server.snapshot().inFlight, 0, 'nothing is left over');
    t.comment(JSON.stringify(Object.fromEntries(seen)));
  });
}
