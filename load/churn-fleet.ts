/**
 * A fleet in which devices come and go, and what may be answered about each of them at any time.
 * Pure: the generator tells it what was sent and answered, and when.
 */
import type { LoadDevice } from './devices.js';
import type { HttpAnswer } from './http-connections.js';

/** A revocation that was sent may hold or not until it was answered; then it holds for good. */
type Standing = 'live' | 'being-revoked' | 'revoked';

/** One device as the generator knows it. */
export interface FleetDevice {
  readonly device: LoadDevice;
  standing: Standing;
}

/** An authentication that is owed: what one replica has answered, the others must know. */
export interface OwedCheck {
  readonly known: FleetDevice;
  readonly replica: number;
}

/** Everything that is known of the devices, and the checks that follow from it. */
export class ChurnFleet {
  private readonly live: FleetDevice[];
  private readonly revokedDevices: LoadDevice[] = [];
  private readonly owed: OwedCheck[] = [];

  constructor(
    devices: readonly LoadDevice[],
    private readonly replicas: number,
  ) {
    this.live = devices.map((device) => ({ device, standing: 'live' }));
  }

  get liveDevices(): LoadDevice[] {
    return this.live.map(({ device }) => device);
  }

  get revoked(): readonly LoadDevice[] {
    return this.revokedDevices;
  }

  /** Any device that is let in; `fraction` chooses. */
  pick(fraction: number): FleetDevice | undefined {
    return this.live[Math.floor(fraction * this.live.length)];
  }

  /** The check that is owed longest. */
  nextOwed(): OwedCheck | undefined {
    return this.owed.shift();
  }

  /** A revocation is about to be sent: from now on nobody can say what the device gets. */
  revoking(known: FleetDevice): void {
    const at = this.live.indexOf(known);
    const last = this.live.pop();
    if (at >= 0 && last !== undefined && last !== known) this.live[at] = last;
    known.standing = 'being-revoked';
  }

  /** The revocation was answered: every replica has to refuse what begins later. */
  wasRevoked(known: FleetDevice): void {
    known.standing = 'revoked';
    this.revokedDevices.push(known.device);
    for (let replica = 0; replica < this.replicas; replica += 1) this.owed.push({ known, replica });
  }

  /** The enrolment was answered by that replica: the others have to know the device, too. */
  wasEnrolled(device: LoadDevice, by: number): void {
    const known: FleetDevice = { device, standing: 'live' };
    this.live.push(known);
    for (let replica = 0; replica < this.replicas; replica += 1) {
      if (replica !== by || this.replicas === 1) this.owed.push({ known, replica });
    }
  }
}

/**
 * What is wrong with an authentication's answer, '' when nothing is. `sentAs` is how the device
 * stood when the request was sent.
 */
export function faultOf(known: FleetDevice, sentAs: Standing, answer: HttpAnswer): string {
  const { id, user } = known.device;
  const allowed = answer.status === 200 && answer.body === JSON.stringify({ device: { id, user } });
  const refused = answer.status === 403 && answer.body.includes('"code":"device_revoked"');
  if (sentAs === 'revoked') return refused ? '' : fault('A revoked device', answer);
  if (known.standing === 'live') return allowed ? '' : fault('A device that is let in', answer);
  return allowed || refused ? '' : fault('A device that is being revoked', answer);
}

function fault(who: string, { status, body }: HttpAnswer): string {
  return `${who} got ${status} ${body}`;
}
