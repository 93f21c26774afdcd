/** Processes of gateways in a run: opened in lots, asked together. */
import type { RunContext } from './run-context.js';
import { gatewayTokens, STREAM_PATH, StreamClients } from './stream-clients.js';
import type { StreamAnswer, StreamCommand } from './stream-clients-process.js';

/** Streams of one process of clients: as many as it can read within a fan-out. */
const STREAMS_PER_PROCESS = 5_000;

/** So many streams on one server. */
export class KillStreamLot {
  private constructor(
    private readonly url: string,
    private readonly tokens: readonly string[],
    private readonly streams: number,
    private readonly processes: readonly StreamClients[],
  ) {}

  /** Makes the gateways and opens the streams; they end with the run. */
  static async open(
    context: RunContext,
    url: string,
    adminToken: string | undefined,
    count: number,
  ): Promise<KillStreamLot> {
    context.progress(`opening ${count} streams on ${url}`);
    const processes = Array.from(
      { length: Math.ceil(count / STREAMS_PER_PROCESS) },
      () => new StreamClients(),
    );
    for (const clients of processes) context.onEnd(() => clients.stop());
    const tokens =
      adminToken === undefined ? ['none'] : await gatewayTokens(url, adminToken, count);
    const lot = new KillStreamLot(url, tokens, count, processes);
    await lot.openAll();
    return lot;
  }

  /** Opens them, again after a cut; `since` is what they hold then. */
  openAll(since?: string): Promise<StreamAnswer> {
    const each = this.streams / this.processes.length;
    return this.askEach((index) => ({
      type: 'open',
      url: this.url,
      path: STREAM_PATH,
      // A token may have a hundred streams: each process has tokens of its own.
      tokens: this.tokens.filter((_, at) => at % this.processes.length === index),
      count: Math.round(each * (index + 1)) - Math.round(each * index),
      ...(since === undefined ? {} : { since }),
    }));
  }

  /** When the last stream had the frame with that version. */
  reached(version: number): Promise<StreamAnswer> {
    return this.askEach(() => ({ type: 'version', version }));
  }

  /** How many are open. */
  count(): Promise<StreamAnswer> {
    return this.askEach(() => ({ type: 'count' }));
  }

  /** Cuts all of them at once. */
  cut(): Promise<StreamAnswer> {
    return this.askEach(() => ({ type: 'cut' }));
  }

  private async askEach(command: (index: number) => StreamCommand): Promise<StreamAnswer> {
    const answers = await Promise.all(
      this.processes.map((clients, index) => clients.ask(command(index))),
    );
    const sum = (pick: (answer: StreamAnswer) => number): number =>
      answers.reduce((total, answer) => total + pick(answer), 0);
    return {
      lastMs: Math.max(...answers.map(({ lastMs }) => lastMs)),
      streams: sum(({ streams }) => streams),
      cpuMs: sum(({ cpuMs }) => cpuMs),
    };
  }
}
