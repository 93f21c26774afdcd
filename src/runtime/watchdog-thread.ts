/** Entry of the watchdog's thread: waits, and kills the process when its time has come. */
import { isatty } from 'node:tty';
import { workerData } from 'node:worker_threads';
import { openLog } from './pino-log.js';
import { ARMED_CELL, BEATS_CELL, type WatchdogData } from './watchdog.js';

const { cells: buffer, logLevel, beatPeriodMs, missedBeatsMax } = workerData as WatchdogData;
const cells = new Int32Array(buffer);

/** Only a signal ends a process from another thread than the main one, and only this one surely. */
function kill(reason: string): void {
  // A terminal that is held would hold this thread as well.
  if (!isatty(1)) openLog('watchdog', logLevel).error({ reason }, 'The process is killed.');
  process.kill(process.pid, 'SIGKILL');
}

function watch(): void {
  let seen = Atomics.load(cells, BEATS_CELL);
  for (let missed = 0; missed < missedBeatsMax; missed += 1) {
    Atomics.wait(cells, ARMED_CELL, 0, beatPeriodMs);
    const armedMs = Atomics.load(cells, ARMED_CELL);
    if (armedMs > 0) {
      // Nothing changes the cell again: this waits for the whole time.
      Atomics.wait(cells, ARMED_CELL, armedMs, armedMs);
      kill('The shutdown took longer than its bound.');
      return;
    }
    const beats = Atomics.load(cells, BEATS_CELL);
    if (beats !== seen) missed = -1;
    seen = beats;
  }
  kill('The main thread does not answer.');
}

watch();
