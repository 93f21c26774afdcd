/** What the pages point to is there: files, pages and headings. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PAGES = [
  'README.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  ...readdirSync(join(ROOT, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];

const textOf = (page: string): string => readFileSync(join(ROOT, page), 'utf8');

/** The names by which a page's headings are linked to, as repository hosts make them. */
function anchorsOf(page: string): string[] {
  const headings = textOf(page).matchAll(/^#{1,6} (.+)$/gm);
  return [...headings].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  );
}

t.test('every link of a page leads to a file, and to a heading of it', async (t) => {
  for (const page of PAGES) {
    for (const [, link = ''] of textOf(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^https?:/.test(link)) continue;
      const [file = '', anchor] = link.split('#');
      const target = file === '' ? page : join(dirname(page), file);
      t.ok(existsSync(join(ROOT, target)), `${page}: ${link}`);
      if (anchor !== undefined) t.ok(anchorsOf(target).includes(anchor), `${page}: ${link}`);
    }
  }
});

t.test('every file that a page names by its path is there', async (t) => {
  const path = /`((?:src|test|docs|deploy|load|migrations|\.ci)\/[\w./-]*\w\/?)`/g;
  for (const page of PAGES) {
    for (const [, name = ''] of textOf(page).matchAll(path)) {
      const isExample = name === 'test/my-first.test.ts';
      t.ok(isExample || existsSync(join(ROOT, name)), `${page}: ${name}`);
    }
  }
});

t.test(
  'files that architecture.md names without their folder stand beside one it named',
  async (t) => {
    const words = [...textOf('docs/architecture.md').matchAll(/`([\w./-]+\.ts)`/g)];
    const folders = new Set<string>();
    for (const [, name = ''] of words) {
      if (name.includes('/')) folders.add(dirname(name));
      else
        t.ok(
          [...folders].some((folder) => existsSync(join(ROOT, folder, name))),
          name,
        );
    }
  },
);
