/** A webhook as an effect: whoever receives it tells repeats by the event's id. */
import type { Effect } from './effect.js';
import { postWebhook, type WebhookEnvironment, type WebhookTarget } from './webhook.js';

/** The payload is the body, JSON. */
export function webhookEffect(target: WebhookTarget, environment: WebhookEnvironment): Effect {
  return {
    kind: 'webhook',
    // Only the receiver knows, and it is not asked: it drops what it has.
    lookUp: async () => 'unknown',
    perform: (key, payload, signal) =>
      postWebhook(
        target,
        { eventId: key, contentType: 'application/json', body: payload },
        environment,
        signal,
      ),
  };
}
