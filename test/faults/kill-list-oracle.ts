/** The kill list: who is killed stays out, and every gateway ends with the same list. */
import { eventually, type HaloAnswer, type HaloServer } from '../fixtures/halo-server.js';
import { Follower, newGateway } from '../fixtures/push-cluster.js';
import type { Dice } from '../simulation/dice.js';
import type { Oracle, World } from './oracle.js';
import type { Replica } from './site.js';

/** A device that is killed and lifted, by one client at a time. */
interface Target {
  readonly id: string;
  readonly credential: string;
  /** `unknown` while a change is under way, and after one that was not answered. */
  state: 'killed' | 'lifted' | 'unknown';
  busy: boolean;
  /** How many changes were begun. */
  changes: number;
}

const TARGETS = 6;
const FOLLOWERS = 8;
const LIST = '/api/v1/kill-list';
/** A stream comes back within seconds of its replica; a client may have waited before it tried. */
const CONVERGE_WITHIN_MS = 20_000;
const SHARES = { authenticate: 6, change: 2 };

/** One for each run. */
export class KillListOracle implements Oracle {
  readonly name = 'kill list';
  private readonly targets: Target[] = [];
  private followers: Follower[] = [];

  async begin(world: World): Promise<void> {
    const { replicas } = world.site;
    const { server } = replicas[0]!;
    for (let index = 0; index < TARGETS; index += 1) {
      const device = await server.enrol(`target-${index}`);
      this.targets.push({ ...device, state: 'lifted', busy: false, changes: 0 });
    }
    const { token } = await newGateway(server);
    this.followers = Array.from({ length: FOLLOWERS }, (_, index) => {
      let turn = index;
      const next = (): HaloServer => {
        turn += 1;
        return replicas[turn % replicas.length]!.server;
      };
      return new Follower(token, next);
    });
  }

  async act(world: World, dice: Dice): Promise<void> {
    const target = dice.pick(this.targets);
    const replica = world.any(dice);
    if (dice.weighted(SHARES) === 'authenticate') await this.authenticate(world, replica, target);
    else if (!target.busy) await this.change(world, replica, target, dice.chance(0.5));
    if (dice.chance(0.01)) dice.pick(this.followers).move();
  }

  async settled(world: World, dice: Dice): Promise<void> {
    for (const target of this.targets) {
      for (const replica of world.site.replicas) {
        await world.insist(`${target.id} at ${replica.name}`, () =>
          this.authenticate(world, replica, target),
        );
      }
    }
    await this.converged(world, dice);
  }

  async end(): Promise<void> {
    for (const follower of this.followers) follower.stop();
  }

  private async authenticate(
    world: World,
    replica: Replica,
    target: Target,
  ): Promise<HaloAnswer | undefined> {
    const { state, changes } = target;
    const answer = await world.call(replica, 'GET', '/api/v1/auth/device', {
      token: target.credential,
    });
    const isSure = changes === target.changes;
    const { status = 503, text = '' } = answer ?? {};
    const what = `${replica.name}: ${target.id} is ${state}, and was answered ${status} ${text}`;
    if (status === 200 && state === 'killed' && isSure) world.fail(what);
    if (status === 403 && state === 'lifted' && isSure) world.fail(what);
    if (status === 401 || status === 429) world.fail(what);
    return answer;
  }

  private async change(
    world: World,
    replica: Replica,
    target: Target,
    kills: boolean,
  ): Promise<void> {
    target.busy = true;
    target.changes += 1;
    target.state = 'unknown';
    const path = `${LIST}/device/${target.id}`;
    const answer = await (kills
      ? world.admin(replica, 'PUT', path, { reason: 'r' })
      : world.admin(replica, 'DELETE', path));
    if (answer?.status === 200) target.state = kills ? 'killed' : 'lifted';
    target.busy = false;
  }

  /** Every gateway is at the newest version at some moment, and none ever saw what it must not. */
  private async converged(world: World, dice: Dice): Promise<void> {
    const path = `${LIST}/agent/round-${world.round}`;
    const marked = await world.insist(path, () =>
      world.admin(world.any(dice), 'PUT', path, { reason: 'r' }),
    );
    const { version } = marked?.json ?? { version: 0 };
    const late = (): Follower[] => this.followers.filter(({ list }) => list.version < version);
    await eventually(() => late().length === 0, CONVERGE_WITHIN_MS).catch(() => {
      world.fail(`${late().length} of ${FOLLOWERS} gateways did not come to version ${version}`);
    });
    const name = `agent/round-${world.round}`;
    for (const { list } of this.followers) {
      if (list.version >= version && !list.entries.has(name)) world.fail(`${name} was lost`);
      for (const fault of list.faults.splice(0)) world.fail(`a gateway saw a ${fault}`);
    }
    for (const replica of world.site.replicas) {
      const list = await world.insist(LIST, () => world.admin(replica, 'GET', LIST));
      if (list && list.json.version < version)
        world.fail(`${replica.name} lost version ${version}`);
    }
  }
}
