/** `npm run sim -- SEED` and `npm run sim -- --seeds COUNT [--from SEED]`: see docs/testing.md. */
import { parseArgs } from 'node:util';
import { simulate } from './simulator.js';

const USAGE = `npm run sim -- SEED                     replays one seed, with its trace if it fails
npm run sim -- --seeds COUNT [--from N]  runs many and prints those that fail
  --answers-only  judges by what clients see, not by the replicas' views
  --first         stops at the first seed that fails`;
/** Wrong usage, as in every program of this project. */
const EXIT_USAGE = 2;

async function replay(seed: number, answersOnly: boolean): Promise<boolean> {
  const { failure, trace, hash, calls } = await simulate(seed, answersOnly);
  if (failure !== undefined) console.log(trace.join('\n'));
  console.log(`seed ${seed}: ${failure ?? 'every promise was kept'}`);
  console.log(`${calls} calls, trace ${hash}`);
  return failure === undefined;
}

async function many(
  from: number,
  count: number,
  options: { readonly answersOnly: boolean; readonly first: boolean },
): Promise<boolean> {
  const failed: number[] = [];
  const startedMs = performance.now();
  for (let seed = from; seed < from + count; seed += 1) {
    const { failure } = await simulate(seed, options.answersOnly);
    if (failure === undefined) continue;
    failed.push(seed);
    console.log(`seed ${seed}: ${failure.split('\n')[0]}`);
    if (options.first) break;
  }
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  console.log(`${count} seeds from ${from} in ${seconds} s: ${failed.length} failed`);
  if (failed.length > 0) console.log(`failed: ${failed.join(' ')}`);
  return failed.length === 0;
}

/** A whole number, or a usage error. */
function wholeNumber(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new TypeError(`${text} is not a whole number`);
  return Number(text);
}

async function run(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      seeds: { type: 'string' },
      from: { type: 'string', default: '1' },
      first: { type: 'boolean', default: false },
      'answers-only': { type: 'boolean', default: false },
    },
  });
  const { first, 'answers-only': answersOnly } = values;
  if ((values.seeds === undefined) === (positionals.length !== 1)) {
    throw new TypeError('one seed, or --seeds and a number of them');
  }
  const kept =
    values.seeds === undefined
      ? await replay(wholeNumber(positionals[0] ?? ''), answersOnly)
      : await many(wholeNumber(values.from), wholeNumber(values.seeds), { answersOnly, first });
  return kept ? 0 : 1;
}

try {
  process.exitCode = await run();
} catch (error) {
  if (!(error instanceof TypeError)) throw error;
  console.error(`${error.message}\n${USAGE}`);
  process.exitCode = EXIT_USAGE;
}
