/** How figures and tables of them look in a terminal. */

/** A number as people read it: two decimals where they say something. */
export function figure(value: number): string {
  return Number.isInteger(value) || Math.abs(value) >= 1000 ? value.toFixed(0) : value.toFixed(2);
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
