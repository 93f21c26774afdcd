#!/usr/bin/env node
/** The `halo` command: asks a running server from the command line. */
import { endWithReader, processConsole } from './console.js';
import { runHalo } from './halo/program.js';

endWithReader();
process.exitCode = await runHalo(process.argv.slice(2), processConsole());
