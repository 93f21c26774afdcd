/** Devices: one token makes one, what was answered stays, and who is revoked stays out. */
import type { HaloAnswer } from '../fixtures/halo-server.js';
import { visit } from '../fixtures/nginx.js';
import type { Dice } from '../simulation/dice.js';
import type { Oracle, World } from './oracle.js';
import type { Replica } from './site.js';

/** A device that an answer named. */
interface KnownDevice {
  readonly id: string;
  readonly credential: string;
  /** `revoking` from the first call on; `revoked` once one was answered. */
  state: 'enrolled' | 'revoking' | 'revoked';
}

/** A token, and the devices that answers to it named: one, or none while no answer came. */
interface KnownToken {
  readonly user: string;
  readonly devices: Set<string>;
}

/** Those that clients still use; all of them would make the few that matter rare. */
const RECENT_MAX = 60;
/** Of a round, looked at on every replica when it is over. */
const LOOKED_AT_MAX = 8;

const SHARES = { authenticate: 12, enter: 3, enrol: 3, revoke: 1, guess: 1 };

/** One for each run. */
export class DeviceOracle implements Oracle {
  readonly name = 'devices';
  private readonly recent: KnownDevice[] = [];
  private tokens: KnownToken[] = [];
  private users = 0;

  async begin(world: World): Promise<void> {
    for (const replica of world.site.replicas) await this.enrol(world, [replica]);
    if (this.recent.length === 0) throw new Error('no device could be enrolled');
  }

  async act(world: World, dice: Dice): Promise<void> {
    const what = dice.weighted(SHARES);
    const device = dice.pick(this.recent);
    const replica = world.any(dice);
    if (what === 'enrol') await this.enrol(world, this.whereToEnrol(world, dice));
    else if (what === 'authenticate') await this.authenticate(world, replica, device);
    else if (what === 'enter') await this.enter(world, device);
    else if (what === 'guess') await this.guess(world, replica);
    // One is never revoked: somebody must be let in when a round is over.
    else if (device !== this.recent[0]) await this.revoke(world, replica, device);
  }

  async settled(world: World): Promise<void> {
    const { tokens } = this;
    this.tokens = [];
    for (const token of tokens) {
      if (token.devices.size > 1) world.fail(`${token.user}: a token made ${token.devices.size}`);
    }
    const devices = [this.recent[0]!, ...this.recent.slice(-LOOKED_AT_MAX)];
    for (const replica of world.site.replicas) {
      for (const token of tokens.slice(-LOOKED_AT_MAX)) await this.look(world, replica, token);
      for (const device of devices) {
        await world.insist(`${device.id} at ${replica.name}`, () =>
          this.authenticate(world, replica, device),
        );
      }
    }
  }

  /** Two replicas at once, now and then: both may be asked, one may say yes. */
  private whereToEnrol(world: World, dice: Dice): Replica[] {
    return dice.chance(0.4) ? [world.any(dice), world.any(dice)] : [world.any(dice)];
  }

  private async enrol(world: World, replicas: readonly Replica[]): Promise<void> {
    this.users += 1;
    const user = `user-${world.round}-${this.users}`;
    const path = '/api/v1/enrollment-tokens';
    const minted = await world.admin(replicas[0]!, 'POST', path, { user });
    if (minted?.status !== 201) return;
    const known: KnownToken = { user, devices: new Set() };
    this.tokens.push(known);
    const body = { token: minted.json.token, name: 'laptop', platform: 'linux' };
    await Promise.all(
      replicas.map(async (replica) => {
        const answer = await world.call(replica, 'POST', '/api/v1/enroll', { body });
        if (answer?.status !== 201) return;
        const { device, credential } = answer.json;
        known.devices.add(device.id);
        this.recent.push({ id: device.id, credential, state: 'enrolled' });
        if (this.recent.length > RECENT_MAX) this.recent.splice(1, 1);
      }),
    );
  }

  private async authenticate(
    world: World,
    replica: Replica,
    device: KnownDevice,
  ): Promise<HaloAnswer | undefined> {
    const before = device.state;
    const answer = await world.call(replica, 'GET', '/api/v1/auth/device', {
      token: device.credential,
    });
    if (answer) this.judge(world, replica.name, device, before, answer.status, answer.text);
    return answer;
  }

  /** Through nginx, where there is one. */
  private async enter(world: World, device: KnownDevice): Promise<void> {
    const { nginx } = world.site;
    if (nginx === undefined) return;
    const before = device.state;
    try {
      const { status, text } = await visit(nginx, '/', { bearer: device.credential });
      if (![200, 401, 403, 429, 503].includes(status)) world.fail(`nginx: ${status} ${text}`);
      this.judge(world, 'nginx', device, before, status, text);
    } catch (error) {
      world.fail(`nginx did not answer: ${String(error)}`);
    }
  }

  private judge(
    world: World,
    where: string,
    device: KnownDevice,
    before: KnownDevice['state'],
    status: number,
    text: string,
  ): void {
    const { id, state } = device;
    if (status === 200 && before === 'revoked') world.fail(`${where} let ${id} in: it is revoked`);
    if (status === 403 && state === 'enrolled') world.fail(`${where} kept ${id} out: ${text}`);
    if (status === 401 || status === 429) world.fail(`${where} does not know ${id}: ${text}`);
  }

  private async guess(world: World, replica: Replica): Promise<void> {
    const token = 'halo_device_nobody-has-this-credential-which-is-a-guess-000000';
    const answer = await world.call(replica, 'GET', '/api/v1/auth/device', { token });
    if (answer?.status === 200) world.fail(`${replica.name} let a guess in`);
    if (answer?.status === 429) world.fail(`${replica.name} counted others' failures`);
  }

  private async revoke(world: World, replica: Replica, device: KnownDevice): Promise<void> {
    if (device.state === 'enrolled') device.state = 'revoking';
    const path = `/api/v1/devices/${device.id}/revoke`;
    const answer = await world.admin(replica, 'POST', path, { reason: 'lost' });
    if (answer?.status === 200) device.state = 'revoked';
  }

  /** What a replica lists of a token's user, once nothing is on its way any more. */
  private async look(world: World, replica: Replica, token: KnownToken): Promise<void> {
    const path = `/api/v1/devices?user=${token.user}`;
    const list = await world.insist(path, () => world.admin(replica, 'GET', path));
    if (list === undefined) return;
    const listed: string[] = list.json.items.map(({ id }: { id: string }) => id);
    if (listed.length > 1) world.fail(`${token.user}: a token made ${listed.length} devices`);
    for (const id of token.devices) {
      if (!listed.includes(id)) world.fail(`${replica.name} lost ${id}, whose making it answered`);
    }
  }
}
