/** How figures and tables of them look in a terminal. */

/** A number as people read it: whole when large, two decimals, or two digits when below a tenth. */
export function figure(value: number): string {
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return value.toFixed(0);
  return Math.abs(value) < 0.1 ? value.toPrecision(2) : value.toFixed(2);
}

/** A column: its title, and what stands there for a row. */
export type Column<Row> = readonly [title: string, cell: (row: Row) => string];

/** Lines with the titles and the rows; the first column to the left, the others to the right. */
export function table<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string[] {
  const cells = [
    columns.map(([title]) => title),
    ...rows.map((row) => columns.map(([, of]) => of(row))),
  ];
  const widths = columns.map((_, column) =>
    Math.max(...cells.map((line) => line[column]?.length ?? 0)),
  );
  return cells.map((line) =>
    line
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('  '),
  );
}
