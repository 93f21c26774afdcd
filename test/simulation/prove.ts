/**
 * Takes each rule of `mutations.ts` out of a copy of the compiled code and runs seeds until one
 * fails: `node dist/test/simulation/prove.js [--seeds 400] [words of a name]`. Exits 1 if a rule
 * can be taken out unnoticed.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { MUTATIONS, type Mutation } from './mutations.js';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seeds: { type: 'string', default: '400' },
    'answers-only': { type: 'boolean', default: false },
  },
});

/** The first seed that fails without the rule, and how; undefined when none does. */
function firstFailure(mutation: Mutation): string | undefined {
  const folder = mkdtempSync(join(tmpdir(), 'halo-mutation-'));
  try {
    for (const part of ['dist/src', 'dist/test/simulation', 'package.json']) {
      cpSync(join(ROOT, part), join(folder, part), { recursive: true });
    }
    symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
    takeOut(mutation, join(folder, 'dist/src', mutation.file));
    const program = join(folder, 'dist/test/simulation/run.js');
    const answersOnly = values['answers-only'] ? ['--answers-only'] : [];
    const options = ['--seeds', values.seeds, '--first', ...answersOnly];
    const { stdout, status } = spawnSync(process.execPath, [program, ...options], {
      encoding: 'utf8',
    });
    if (status === 0) return undefined;
    return stdout.split('\n').find((line) => line.startsWith('seed ')) ?? `it ended with ${status}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function takeOut({ name, find, put }: Mutation, file: string): void {
  const text = readFileSync(file, 'utf8');
  const found = text.match(new RegExp(find, `${find.flags}g`)) ?? [];
  if (found.length !== 1) throw new Error(`“${name}” is there ${found.length} times, not once`);
  writeFileSync(file, text.replace(find, put));
}

for (const mutation of MUTATIONS) {
  if (!positionals.every((word) => mutation.name.includes(word))) continue;
  const failure = firstFailure(mutation);
  console.log(`${mutation.name}\n  ${failure ?? `not noticed in ${values.seeds} seeds`}`);
  if (failure === undefined) process.exitCode = 1;
}
