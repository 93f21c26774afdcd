/** `npm run sim -- SEED` and `npm run sim -- --seeds COUNT [--from SEED]`: see docs/testing.md. */
import { parseArgs } from 'node:util';
import { simulate } from './simulator.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seeds: { type: 'string' },
    from: { type: 'string', default: '1' },
    /** Stops at the first seed that fails. */
    first: { type: 'boolean', default: false },
  },
});

async function replay(seed: number): Promise<void> {
  const run = await simulate(seed);
  if (run.failure !== undefined) {
    console.log(run.trace.join('\n'));
    process.exitCode = 1;
  }
  console.log(`seed ${seed}: ${run.failure ?? 'every promise was kept'}`);
  console.log(`${run.calls} calls, trace ${run.hash}`);
}

async function many(from: number, count: number): Promise<void> {
  const failed: number[] = [];
  const startedMs = performance.now();
  for (let seed = from; seed < from + count; seed += 1) {
    const { failure } = await simulate(seed);
    if (failure === undefined) continue;
    failed.push(seed);
    console.log(`seed ${seed}: ${failure.split('\n')[0]}`);
    if (values.first) break;
  }
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  console.log(`${count} seeds from ${from} in ${seconds} s: ${failed.length} failed`);
  if (failed.length > 0) {
    console.log(`failed: ${failed.join(' ')}`);
    process.exitCode = 1;
  }
}

if (values.seeds !== undefined) await many(Number(values.from), Number(values.seeds));
else await replay(Number(positionals[0] ?? 1));
