#!/usr/bin/env node
/** The `halo-server` command: runs a server and migrates its database. */
import { processConsole } from './console.js';
import { runHaloServer } from './server-program.js';

process.exitCode = await runHaloServer(process.argv.slice(2), processConsole());
