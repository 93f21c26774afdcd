/** The ids of one kind of document in order, kept so that a page costs no sort of all of them. */
export class SortedIds {
  private sorted: string[] = [];
  private readonly added = new Set<string>();
  private readonly removed = new Set<string>();

  add(id: string): void {
    if (!this.removed.delete(id)) this.added.add(id);
  }

  remove(id: string): void {
    if (!this.added.delete(id)) this.removed.add(id);
  }

  /** All ids after `afterId`, in order; the ids must not change while they are walked. */
  *after(afterId: string): Generator<string> {
    this.merge();
    for (let i = this.firstAfter(afterId); i < this.sorted.length; i += 1) {
      yield this.sorted[i] ?? '';
    }
  }

  private merge(): void {
    if (this.added.size + this.removed.size === 0) return;
    const kept = this.sorted.filter((id) => !this.removed.has(id));
    const added = [...this.added].sort((one, other) => (one < other ? -1 : 1));
    const merged: string[] = [];
    let next = 0;
    for (const id of kept) {
      for (; next < added.length && (added[next] ?? '') < id; next += 1) {
        merged.push(added[next] ?? '');
      }
      merged.push(id);
    }
    this.sorted = merged.concat(added.slice(next));
    this.added.clear();
    this.removed.clear();
  }

  private firstAfter(afterId: string): number {
    let low = 0;
    let high = this.sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.sorted[middle] ?? '') > afterId) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
