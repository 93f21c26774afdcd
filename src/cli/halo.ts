#!/usr/bin/env node
/** The `halo` command: asks a running server from the command line. */
import { runHalo } from './halo/program.js';

process.exitCode = await runHalo(process.argv.slice(2), {
  environment: process.env,
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
});
