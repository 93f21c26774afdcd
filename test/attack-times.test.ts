/** Times at the edges of what can be written. */
import fc from 'fast-check';
import { is } from 'superstruct';
import t from 'tap';
import { instant, instantMs, time, timeText } from '../src/http/schema.js';

const came = instant('a time as it comes in');
const leaves = time('a time as it leaves');

t.test('a time that an offset moves out of the calendar’s years is refused', async (t) => {
  for (const text of [
    '9999-12-31T23:59:59-00:01',
    '9999-12-31T23:59:59.999999999-23:59',
    '0000-01-01T00:00:00+00:01',
    '0000-01-01T23:58:00+23:59',
  ]) {
    t.notOk(is(text, came), text);
  }
  for (const text of [
    '9999-12-31T00:00:00-23:59',
    '9999-12-31T23:59:59.999Z',
    '0000-01-01T00:00:00-00:01',
  ]) {
    t.ok(is(text, came), text);
  }
});

t.test('whatever time is taken can be given back', async () => {
  const two = (min: number, max: number): fc.Arbitrary<string> =>
    fc
      .oneof(fc.integer({ min, max }), fc.constantFrom(min, max))
      .map((number) => String(number).padStart(2, '0'));
  const year = fc
    .oneof(fc.integer({ min: 0, max: 9999 }), fc.constantFrom(0, 9999))
    .map((number) => String(number).padStart(4, '0'));
  const offset = fc.oneof(
    fc.constantFrom('Z', 'z'),
    fc.tuple(fc.constantFrom('+', '-'), two(0, 23), two(0, 59)).map(([s, h, m]) => `${s}${h}:${m}`),
  );
  const texts = fc
    .tuple(year, two(1, 12), two(1, 31), two(0, 23), two(0, 59), two(0, 59), offset)
    .map(([y, mo, d, h, mi, s, o]) => `${y}-${mo}-${d}T${h}:${mi}:${s}${o}`);
  fc.assert(
    fc.property(texts, (text) => !is(text, came) || is(timeText(instantMs(text)), leaves)),
    { numRuns: 2_000 },
  );
});
