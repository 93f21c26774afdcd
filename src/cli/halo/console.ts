/** Where a command's words go: results to `out`, everything else to `err`. Tests pass their own. */
export interface Console {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Writes text as it is, line ends included. */
  out(text: string): void;
  err(text: string): void;
}

/** A column of a table: its heading, and what stands in it. */
export interface Column<Row> {
  readonly heading: string;
  readonly value: (row: Row) => string;
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
