/** `npm run faults -- --seed S --rounds N`: see docs/testing.md. */
import { parseArgs } from 'node:util';
import { type PlayOptions, play } from './play.js';

const USAGE = `npm run faults -- [--seed S] [--rounds N] [--from R] [--replicas N] [--nginx]
  --seed      what is drawn from; one at random unless given
  --rounds    how many faults, or pairs of them (default 20)
  --from      the number of the first round: --from 17 --rounds 1 plays round 17 alone
  --replicas  processes on one PostgreSQL (default 2)
  --nginx     lets devices in through nginx as well`;
/** Wrong usage, as in every program of this project. */
const EXIT_USAGE = 2;
/** Seeds that are easy to type again. */
const SEEDS = 1_000_000;

function wholeNumber(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new TypeError(`${text} is not a whole number`);
  return Number(text);
}

/** What is asked for, or a usage error. */
function options(): PlayOptions {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string' },
      rounds: { type: 'string', default: '20' },
      from: { type: 'string', default: '1' },
      replicas: { type: 'string', default: '2' },
      nginx: { type: 'boolean', default: false },
    },
  });
  const seed = values.seed ?? process.env['SEED'];
  return {
    seed: seed === undefined ? Math.floor(Math.random() * SEEDS) : wholeNumber(seed),
    rounds: wholeNumber(values.rounds),
    from: wholeNumber(values.from),
    replicas: wholeNumber(values.replicas),
    nginx: values.nginx,
    log: (line) => console.log(line),
  };
}

async function run(asked: PlayOptions): Promise<number> {
  console.log(`seed ${asked.seed}, ${asked.rounds} rounds`);
  const { failures, calls, answers, slowestBackMs } = await play(asked);
  console.log(`${calls} calls, by status (0: lost with its replica): ${JSON.stringify(answers)}`);
  console.log(`all replicas were ready at most ${slowestBackMs} ms after a fault was over`);
  for (const failure of failures) console.log(`FAILED: ${failure}`);
  console.log(failures.length === 0 ? 'every promise was kept' : `again: --seed ${asked.seed}`);
  return failures.length === 0 ? 0 : 1;
}

let asked: PlayOptions | undefined;
try {
  asked = options();
} catch (error) {
  if (!(error instanceof TypeError)) throw error;
  console.error(`${error.message}\n${USAGE}`);
}
process.exitCode = asked === undefined ? EXIT_USAGE : await run(asked);
