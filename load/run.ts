/**
 * `npm run load -- device-auth …`: runs one load profile and prints its report. Exit codes: 0 as
 * wanted; 1 a wrong answer, an error, too slow, or (with `--enforce`) a target missed; 2 usage.
 */
import { writeFileSync } from 'node:fs';
import { type LoadOptions, parseLoadOptions } from './options.js';
import { runDeviceAuth } from './profiles/device-auth.js';
import { runDeviceScale } from './profiles/device-scale.js';
import { runKillFanout } from './profiles/kill-fanout.js';
import { type LoadReport, reportText } from './report.js';
import { withRunContext } from './run-context.js';

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

async function main(argv: readonly string[]): Promise<number> {
  const parsed = parseLoadOptions(argv);
  if (parsed.kind === 'help') return 0;
  if (parsed.kind === 'usage') return EXIT_USAGE;
  const report = await run(parsed.options);
  process.stdout.write(`${reportText(report)}\n`);
  if (parsed.options.jsonFile !== undefined) {
    writeFileSync(parsed.options.jsonFile, `${JSON.stringify(report, undefined, 2)}\n`);
  }
  return report.ok ? 0 : EXIT_FAILED;
}

function run(options: LoadOptions): Promise<LoadReport> {
  return withRunContext(options, (context) => {
    switch (options.profile) {
      case 'device-auth':
        return runDeviceAuth(options, context);
      case 'device-scale':
        return runDeviceScale(options, context);
      case 'kill-fanout':
        return runKillFanout(options, context);
    }
  });
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = EXIT_FAILED;
}
