/** Writes the test vectors of `docs/evidence.md` again, from the project's folder. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { allCases, caseLine } from '../fixtures/evidence-cases.js';

const folder = join(process.cwd(), 'test/vectors');
const cases = allCases();
for (const { files } of cases) {
  for (const [path, content] of files) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
}
writeFileSync(join(folder, 'cases.jsonl'), cases.map(caseLine).join(''));
console.log(`${cases.length} cases written`);
