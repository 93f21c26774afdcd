/** Every `halo` and `halo-server` command that a page shows is one, with options that it has. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import type { Console } from '../src/cli/console.js';
import { runHalo } from '../src/cli/halo/program.js';
import { runHaloServer } from '../src/cli/server-program.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PAGES = ['README.md', 'CONTRIBUTING.md']
  .concat(readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`))
  .filter((page) => page.endsWith('.md'));
/** At the beginning of a line, in a pipe's first part, or between back-ticks. */
const COMMAND = /(?:^ *|`)(?:npx )?(halo|halo-server) ((?:\\\n|[^`\n|])+)/gm;

/** What the help of a command says, down to the last word that is one. */
async function helpOf(program: string, words: readonly string[]): Promise<string> {
  let out = '';
  const console: Console = {
    environment: {},
    out: (text) => {
      out += text;
    },
    err: () => undefined,
  };
  const run = program === 'halo' ? runHalo : runHaloServer;
  const exitCode = await run([...words, '--help'], console);
  return exitCode === 0 ? out : '';
}

t.test('every command of a page is one, with options that its help names', async (t) => {
  let tried = 0;
  for (const page of PAGES) {
    const text = readFileSync(join(ROOT, page), 'utf8');
    for (const [, program = '', rest = ''] of text.matchAll(COMMAND)) {
      const words = rest.replaceAll('\\\n', ' ').trim().split(/\s+/);
      const [command = '', subcommand = ''] = words.filter((word) => /^[a-z][a-z-]+$/.test(word));
      const path = ['gateway', 'devices', 'audit'].includes(command)
        ? [command, subcommand]
        : [command];
      const known = await helpOf(
        program,
        path.filter((word) => word !== ''),
      );
      const shown = `${page}: ${program} ${rest.trim()}`;
      if (command !== '') t.match(known, `Usage: ${program} ${command}`, shown);
      for (const option of rest.match(/(?<=\s|^)--[a-z-]+/g) ?? []) {
        t.match(known, new RegExp(` ${option}\\b`), shown);
      }
      tried += 1;
    }
  }
  t.ok(tried > 40, `${tried} commands`);
});
