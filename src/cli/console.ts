/** The words of a command: where they go, and how they are laid out for people. */
import { once } from 'node:events';
import type { Command } from 'commander';

/** Where a command's words go: results to `out`, everything else to `err`. Tests pass their own. */
export interface Console {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Writes text as it is, line ends included. */
  out(text: string): void;
  err(text: string): void;
  /** Whether `err` is a terminal: progress is shown nowhere else. Default: it is not. */
  readonly isTerminal?: boolean;
  /** Resolves when whoever reads `out` has taken so much that more may be written. */
  readonly taken?: () => Promise<void>;
}

/** A column of a table: its heading, and what stands in it. */
export interface Column<Row> {
  readonly heading: string;
  readonly value: (row: Row) => string;
}

/** The console of this process. */
export function processConsole(): Console {
  return {
    environment: process.env,
    out: (text) => void process.stdout.write(text),
    err: (text) => void process.stderr.write(text),
    isTerminal: process.stderr.isTTY === true,
    taken: async () => {
      if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain');
    },
  };
}

/** Ends a command quietly when whoever reads its output has read enough, as `head` does. */
export function endWithReader(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    process.exit(0);
  });
}

/**
 * Settings of every command: it ends by an exception instead of the process, writes to `console`,
 * and never repeats the user and password of a URL that was given where none belongs.
 */
export function applyConsole(command: Command, console: Console): Command {
  return command
    .exitOverride()
    .configureOutput({
      writeOut: (text) => console.out(text),
      writeErr: (text) => console.err(withoutCredentials(text)),
    })
    .showHelpAfterError('(--help shows what there is)');
}

/** Text in which no URL has a user or a password. */
export function withoutCredentials(text: string): string {
  return text.replaceAll(/:\/\/[^\s/]*@/g, '://…@');
}

const GAP = '  ';

/** A table for people: headings, then a line per row, columns as wide as their widest value. */
export function tableText<Row>(columns: ReadonlyArray<Column<Row>>, rows: readonly Row[]): string {
  const lines = [
    columns.map((column) => column.heading),
    ...rows.map((row) => columns.map((column) => printable(column.value(row)))),
  ];
  const widths = columns.map((_, index) => Math.max(...lines.map((line) => width(line[index]))));
  return lines.map((line) => `${alignLine(line, widths)}\n`).join('');
}

/** Names and values in two columns, for one thing. */
export function factsText(facts: ReadonlyArray<readonly [name: string, value: string]>): string {
  const widest = Math.max(...facts.map(([name]) => width(name)));
  return facts
    .map(([name, value]) => `${alignLine([name, printable(value)], [widest])}\n`)
    .join('');
}

/** Text of a server without what could steer a terminal. */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}]/gu, '\uFFFD');
}

function alignLine(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, index) => cell + ' '.repeat(Math.max(0, (widths[index] ?? 0) - width(cell))))
    .join(GAP)
    .trimEnd();
}

/** Characters as people count them, near enough for names. */
function width(text: string | undefined): number {
  return [...(text ?? '')].length;
}
