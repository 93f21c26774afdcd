/** Every dependency has a line that says what for, under which licence, and why. */
import { readFileSync } from 'node:fs';
import t from 'tap';

interface Package {
  readonly license?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly overrides?: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

const readPackage = (path: string): Package => JSON.parse(readFileSync(path, 'utf8')) as Package;
const root = readPackage('package.json');
const page = readFileSync('docs/dependencies.md', 'utf8');

/** Licences of packages whose own statement is wrong; the file in them is what counts. */
const CORRECTED_LICENCES: Readonly<Record<string, string>> = { 'uWebSockets.js': 'Apache-2.0' };

/** The cells of each row of the table under a heading. */
function rowsUnder(heading: string): string[][] {
  const section = page.split(/^## /m).find((part) => part.startsWith(heading)) ?? '';
  return section
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
}

const nameIn = (cell: string | undefined): string => /`([^`]+)`/.exec(cell ?? '')?.[1] ?? '';

for (const [heading, wanted] of [
  ['At run time', root.dependencies ?? {}],
  ['For building and testing', root.devDependencies ?? {}],
] as const) {
  t.test(`the page names exactly the packages ${heading.toLowerCase()}`, async (t) => {
    const rows = rowsUnder(heading);
    t.same(
      rows.map(([name]) => nameIn(name)),
      Object.keys(wanted).sort(),
      'in the same order',
    );
    for (const [name, purpose = '', licence = '', reason = ''] of rows) {
      const stated = readPackage(`node_modules/${nameIn(name)}/package.json`).license;
      t.equal(licence, CORRECTED_LICENCES[nameIn(name)] ?? stated, `${name} has that licence`);
      t.ok(purpose.length > 10 && reason.length > 10, `${name} says what for and why`);
    }
  });
}

t.test('versions are exact and overrides are explained', async (t) => {
  for (const [name, version] of Object.entries({ ...root.dependencies, ...root.devDependencies })) {
    t.match(version, /^(npm:\w+@)?\d+\.\d+\.\d+(-[\w.]+)?$/, `${name} is pinned`);
  }
  const overridden = Object.entries(root.overrides ?? {}).flatMap(([parent, pins]) =>
    Object.entries(pins).map(([name, version]) => `${name} below ${parent} ${version}`),
  );
  const explained = rowsUnder('Overrides').map(
    ([name = '', version = '']) => `${name.replaceAll('`', '')} ${version}`,
  );
  t.same(explained, overridden);
});

t.test('nothing installed asks for a newer Node than the project does', async (t) => {
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
    packages: Record<string, { engines?: { node?: string }; optional?: boolean }>;
  };
  const newer = Object.entries(packages)
    .filter(([, { engines }]) => /^\s*>=?\s*(2[1-9]|[3-9]\d)(\.\S+)?\s*$/.test(engines?.node ?? ''))
    .map(([path]) => path);
  t.same(newer, []);
});
