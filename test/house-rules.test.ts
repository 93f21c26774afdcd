/** The points of the house style that a program can check, and each check checked itself. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { type Example, ruleExamples } from './fixtures/house-rules-bad-examples.js';
import { importRules, importTreeRules } from './fixtures/house-rules-imports.js';
import {
  listFiles,
  loadTexts,
  loadUnits,
  parseUnit,
  type TextRule,
  type TreeRule,
  type UnitRule,
  type Violation,
} from './fixtures/house-rules-source.js';
import { syntaxRules } from './fixtures/house-rules-syntax.js';
import { testNameRules, testNameTreeRules } from './fixtures/house-rules-tests.js';
import { textRules, textUnitRules } from './fixtures/house-rules-text.js';

const root = process.cwd();
const unitRules: readonly UnitRule[] = [
  ...textUnitRules,
  ...syntaxRules,
  ...importRules,
  ...testNameRules,
];
const treeRules: readonly TreeRule[] = [...importTreeRules, ...testNameTreeRules];

/** Breaches that are tolerated: how many of one rule in one file, and why. */
interface Allowed {
  readonly rule: string;
  readonly path: string;
  readonly count: number;
  readonly reason: string;
}

const allowedPath = 'test/fixtures/house-rules-allowed.json';
/** What the list may tolerate in all. Lower it with every entry that goes; never raise it. */
const ALLOWED_TOTAL_MAX = 0;
const allowed = JSON.parse(readFileSync(join(root, allowedPath), 'utf8')) as Allowed[];

function report(violations: readonly Violation[]): string[] {
  return violations.map(({ path, line, message }) => `${path}:${line} ${message}`);
}

/** What is left of a rule's violations after the allow-list took its recorded number per file. */
function beyondAllowed(rule: string, violations: readonly Violation[]): Violation[] {
  return violations.filter(({ path }) => {
    const tolerated = allowed.find((entry) => entry.rule === rule && entry.path === path);
    const seen = violations.filter((other) => other.path === path).length;
    return tolerated === undefined || seen > tolerated.count;
  });
}

function checkOf(rule: UnitRule | TreeRule | TextRule): (files: readonly Example[]) => Violation[] {
  const parse = (file: Example): ReturnType<typeof parseUnit> => parseUnit(file.path, file.text);
  const unitRule = unitRules.find((one) => one === rule);
  if (unitRule !== undefined) return (files) => files.map(parse).flatMap(unitRule.check);
  const treeRule = treeRules.find((one) => one === rule);
  if (treeRule !== undefined) return (files) => treeRule.check(files.map(parse));
  return (files) => files.flatMap((rule as TextRule).check);
}

const allRules = [...unitRules, ...treeRules, ...textRules];

t.test('every house rule refuses its bad examples and lets near misses through', async (t) => {
  t.same(
    allRules.map((rule) => rule.name).sort(),
    ruleExamples.map((examples) => examples.rule).sort(),
    'every rule has examples, and every example a rule',
  );
  for (const rule of allRules) {
    const examples = ruleExamples.find((one) => one.rule === rule.name);
    const check = checkOf(rule);
    for (const files of examples?.bad ?? []) {
      const text = files.map((file) => file.text.slice(0, 60)).join(' | ');
      t.not(check(files).length, 0, `${rule.name} refuses ${files[0]?.path}: ${text}`);
    }
    for (const files of examples?.good ?? []) {
      t.same(report(check(files)), [], `${rule.name} lets ${files[0]?.path} through`);
    }
  }
});

t.test('the tree keeps every house rule', async (t) => {
  const units = loadUnits(root);
  const texts = loadTexts(root);
  t.ok(
    units.some((unit) => unit.path === 'src/runtime/clock.ts'),
    'the rules look at this tree',
  );
  const found = new Map<string, Violation[]>([
    ...unitRules.map((rule) => [rule.name, units.flatMap(rule.check)] as const),
    ...treeRules.map((rule) => [rule.name, rule.check(units)] as const),
    ...textRules.map((rule) => [rule.name, texts.flatMap(rule.check)] as const),
  ]);
  for (const [rule, violations] of found) {
    const beyond = report(beyondAllowed(rule, violations));
    for (const one of beyond) t.fail(`${rule}: ${one}`, { at: null, stack: '' });
    if (beyond.length === 0) t.pass(rule);
  }
  for (const { rule, path, count, reason } of allowed) {
    const seen = (found.get(rule) ?? []).filter((violation) => violation.path === path).length;
    t.equal(seen, count, `the allowance of ${rule} in ${path} is as small as it can be`);
    t.ok(reason.length > 10, `the allowance of ${rule} in ${path} says why`);
  }
  const total = allowed.reduce((sum, entry) => sum + entry.count, 0);
  t.ok(total <= ALLOWED_TOTAL_MAX, `${total} tolerated, at most ${ALLOWED_TOTAL_MAX}`);
});

t.test('every compiled test still has its source', async (t) => {
  if (!existsSync(join(root, 'dist/test'))) return;
  const orphans = listFiles(join(root, 'dist/test'))
    .filter((path) => path.endsWith('.test.js'))
    .filter((path) => !existsSync(join(root, 'test', path.replace(/\.js$/, '.ts'))));
  t.same(orphans, [], 'remove dist and build again');
});
