/**
 * What `halo chaos` runs: see docs/chaos.md. Progress goes to standard error, and the verdicts as
 * one line of JSON to standard output.
 */
import { parseArgs } from 'node:util';
import { playChaos } from './chaos.js';
import { exitCodeOf, GUARANTEES, verdictText } from './guarantees.js';
import { SCENARIOS, type ScenarioName } from './scenarios.js';

/** Wrong usage, as in every program of this project. */
const EXIT_USAGE = 2;
/** Seeds that are easy to type again. */
const SEEDS = 1_000_000;

interface Asked {
  readonly seed: number;
  readonly rounds: number;
  readonly replicas: number;
  readonly scenarios: readonly ScenarioName[];
  /** Nothing is to be played. */
  readonly isListed: boolean;
}

function wholeNumber(option: string, text: string, min: number): number {
  if (!/^\d{1,9}$/.test(text) || Number(text) < min) {
    throw new TypeError(`--${option} is a whole number from ${min} on, not ${text}`);
  }
  return Number(text);
}

function scenarioNamed(name: string): ScenarioName {
  if (!Object.hasOwn(SCENARIOS, name)) {
    throw new TypeError(`no scenario ${name}; there are ${Object.keys(SCENARIOS).join(', ')}`);
  }
  return name as ScenarioName;
}

function asked(): Asked {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string' },
      rounds: { type: 'string', default: '1' },
      replicas: { type: 'string', default: '2' },
      scenario: { type: 'string', multiple: true },
      list: { type: 'boolean', default: false },
    },
  });
  const names = values.scenario?.map(scenarioNamed) ?? Object.keys(SCENARIOS).map(scenarioNamed);
  return {
    seed:
      values.seed === undefined
        ? Math.floor(Math.random() * SEEDS)
        : wholeNumber('seed', values.seed, 0),
    rounds: wholeNumber('rounds', values.rounds, 1),
    replicas: wholeNumber('replicas', values.replicas, 2),
    scenarios: names,
    isListed: values.list,
  };
}

/** What there is, for `--list`. */
function listed(): { text: string; scenarios: unknown; guarantees: unknown } {
  const scenarios = Object.entries(SCENARIOS).map(([name, { what }]) => [name, what] as const);
  const guarantees = Object.entries(GUARANTEES);
  const lines = (rows: ReadonlyArray<readonly [string, string]>): string =>
    rows.map(([name, what]) => `  ${name.padEnd(34)}${what}\n`).join('');
  return {
    text: `Scenarios:\n${lines(scenarios)}Guarantees:\n${lines(guarantees)}`,
    scenarios: Object.fromEntries(scenarios),
    guarantees: GUARANTEES,
  };
}

async function run({ seed, rounds, replicas, scenarios }: Asked): Promise<number> {
  const tell = (line: string): void => console.error(line);
  const times = rounds === 1 ? 'once' : `${rounds} times`;
  tell(`seed ${seed}, ${replicas} replicas, each of these ${times}: ${scenarios.join(', ')}`);
  const judged = await playChaos({ seed, rounds, replicas, scenarios, log: tell });
  const exitCode = exitCodeOf(judged);
  const verdict = exitCode === 0 ? 'Every guarantee held' : 'Not every guarantee held';
  const text = `${verdictText(judged)}${verdict}; seed ${seed}.\n`;
  const held = exitCode === 0;
  console.log(JSON.stringify({ seed, rounds, replicas, scenarios, held, judged, text }));
  return exitCode;
}

/** undefined: it was said what is wrong with what was asked. */
function askedOrTold(): Asked | undefined {
  try {
    return asked();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    console.error(error.message);
    return undefined;
  }
}

const what = askedOrTold();
if (what === undefined) process.exitCode = EXIT_USAGE;
else if (what.isListed) console.log(JSON.stringify(listed()));
else process.exitCode = await run(what);
