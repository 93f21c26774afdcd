/** The rules that `prove.ts` takes out are where it looks for them: running it takes minutes. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { MUTATIONS } from './simulation/mutations.js';

t.test('every rule that is to be taken out is in the compiled code once', async (t) => {
  for (const { name, file, find } of MUTATIONS) {
    const code = readFileSync(new URL(`../src/${file}`, import.meta.url), 'utf8');
    t.equal([...code.matchAll(new RegExp(find, 'g'))].length, 1, name);
  }
});
