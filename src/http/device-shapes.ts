/** Devices on the wire (API.md, "Devices"). */
import { array, optional } from 'superstruct';
import type { DeviceView } from '../actors/devices/messages.js';
import { CURSOR_LENGTH_MAX } from './cursor.js';
import { fields, name, opaque, time, timeText, userName } from './schema.js';

const identity = {
  id: name('`dev_` and a UUID.'),
  user: userName(),
  name: name('What the device called itself when it enrolled.'),
  platform: name('Such as `linux`.'),
  enrolledAt: time('When it enrolled.'),
};

export const enrolledDevice = fields(identity);

export const device = fields({
  ...identity,
  revokedAt: optional(time('When it was revoked; absent while it is not.')),
  revokedReason: optional(name('Why it was revoked.')),
  lastSeenAt: optional(time('When it was last let in, exact to a minute.')),
});

export const devicePage = fields({
  items: array(device),
  next: optional(opaque(CURSOR_LENGTH_MAX, 'Cursor of the next page; absent on the last.')),
});

export const allowedDevice = fields({
  device: fields({ id: identity.id, user: identity.user }),
});

/** A device as JSON; the type that the struct `device` checks. */
export interface DeviceBody {
  readonly id: string;
  readonly user: string;
  readonly name: string;
  readonly platform: string;
  readonly enrolledAt: string;
  readonly revokedAt?: string;
  readonly revokedReason?: string;
  readonly lastSeenAt?: string;
}

/** A device as lists and single answers show it. */
export function deviceBody(view: DeviceView): DeviceBody {
  return {
    ...enrolledBody(view),
    ...(view.revokedAtMs === undefined ? {} : { revokedAt: timeText(view.revokedAtMs) }),
    ...(view.revokedReason === undefined ? {} : { revokedReason: view.revokedReason }),
    ...(view.lastSeenAtMs === undefined ? {} : { lastSeenAt: timeText(view.lastSeenAtMs) }),
  };
}

/** A device as enrolment shows it: nothing can have happened to it yet. */
export function enrolledBody(view: DeviceView): DeviceBody {
  return {
    id: view.id,
    user: view.user,
    name: view.name,
    platform: view.platform,
    enrolledAt: timeText(view.enrolledAtMs),
  };
}
