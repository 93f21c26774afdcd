#!/usr/bin/env node
/** The `halo-verify` command: proves a chain of evidence without asking its server. */
import { endWithReader, processConsole } from './console.js';
import { runHaloVerify } from './halo-verify/program.js';

endWithReader();
process.exitCode = await runHaloVerify(process.argv.slice(2), processConsole(), {
  isTerminal: process.stderr.isTTY === true,
});
