/**
 * `npm run load -- device-auth …`: runs one load profile and prints its report. Exit codes: 0 as
 * wanted; 1 a wrong answer, an error, too slow, or (with `--enforce`) a target missed; 2 usage.
 */
import { writeFileSync } from 'node:fs';
import { type LoadOptions, parseLoadOptions } from './options.js';
import type { Profile } from './profile-list.js';
import { runChainDrain } from './profiles/chain-drain.js';
import { runDecisions } from './profiles/decisions.js';
import { runDeviceAuth } from './profiles/device-auth.js';
import { runDeviceAuthChurn } from './profiles/device-auth-churn.js';
import { runDeviceScale } from './profiles/device-scale.js';
import { runEnqueue } from './profiles/enqueue.js';
import { runIdleStreams } from './profiles/idle-streams.js';
import { runKillFanout } from './profiles/kill-fanout.js';
import { runOverload } from './profiles/overload.js';
import { runReconnectStorm } from './profiles/reconnect-storm.js';
import { runVerify } from './profiles/verify.js';
import { RECORD_FILE, recordRun } from './record.js';
import { type LoadReport, reportText } from './report.js';
import { type RunContext, withRunContext } from './run-context.js';

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

type RunProfile = (options: LoadOptions, context: RunContext) => Promise<LoadReport>;

const RUNS: Readonly<Record<Profile, RunProfile>> = {
  'device-auth': runDeviceAuth,
  'device-scale': runDeviceScale,
  'device-auth-churn': runDeviceAuthChurn,
  overload: runOverload,
  'kill-fanout': runKillFanout,
  'reconnect-storm': runReconnectStorm,
  'idle-streams': runIdleStreams,
  decisions: runDecisions,
  enqueue: runEnqueue,
  'chain-drain': runChainDrain,
  verify: runVerify,
};

async function main(argv: readonly string[]): Promise<number> {
  const parsed = parseLoadOptions(argv);
  if (parsed.kind === 'help') return 0;
  if (parsed.kind === 'usage') return EXIT_USAGE;
  const { options } = parsed;
  const report = await withRunContext(options, (context) =>
    RUNS[options.profile](options, context),
  );
  process.stdout.write(`${reportText(report)}\n`);
  if (options.jsonFile !== undefined) {
    writeFileSync(options.jsonFile, `${JSON.stringify(report, undefined, 2)}\n`);
  }
  if (options.record) {
    recordRun(report, argv);
    process.stderr.write(`load: recorded in ${RECORD_FILE}\n`);
  }
  return report.ok ? 0 : EXIT_FAILED;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = EXIT_FAILED;
}
