/** What `halo-server serve --dev` says once it is ready: where things are, and what to paste. */

/** What the welcome tells. */
export interface WelcomeFacts {
  readonly version: string;
  /** The server's own address, such as `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly metricsUrl: string;
  /** Absolute, since the commands may be pasted in another folder. */
  readonly dataDir: string;
  /** Absolute. */
  readonly adminTokenFile: string;
}

/**
 * The text, with commands for `sh` that need only curl and sed. They work pasted as they are, all
 * at once or one by one: a test does it.
 */
export function welcomeText(facts: WelcomeFacts): string {
  return `
Halos ${facts.version} is ready.

  address       ${facts.url}
  data          ${facts.dataDir}
  admin token   ${facts.adminTokenFile}
  metrics       ${facts.metricsUrl}

Paste this into another terminal: it enrols a device, authenticates it, revokes it, and sees it
refused.

${indent(pastedCommands(facts))}

More: ${facts.url}/openapi.json, or \`halo --help\`. Stop with Ctrl-C.
`;
}

/** The commands alone, for documentation and the test. */
export function pastedCommands(facts: Pick<WelcomeFacts, 'url' | 'adminTokenFile'>): string {
  return `
HALO=${facts.url}
ADMIN=$(sed 's/.*://;q' ${quoted(facts.adminTokenFile)})

# A token that lets one device of Ann's in, and the device that spends it.
TOKEN=$(curl -sS "$HALO/api/v1/enrollment-tokens" -H "Authorization: Bearer $ADMIN" \\
  -H 'Content-Type: application/json' -d '{"user":"ann"}' | sed 's/.*"token":"\\([^"]*\\)".*/\\1/')
DEVICE=$(curl -sS "$HALO/api/v1/enroll" -H 'Content-Type: application/json' \\
  -d '{"token":"'"$TOKEN"'","name":"laptop","platform":"linux"}')
ID=$(echo "$DEVICE" | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')
CREDENTIAL=$(echo "$DEVICE" | sed 's/.*"credential":"\\([^"]*\\)".*/\\1/')

# What a gateway asks for every request: 200 with the device and its user.
curl -sS -i "$HALO/api/v1/auth/device" -H "Authorization: Bearer $CREDENTIAL"; echo

# Revoked, and from the next request on refused: 403 device_revoked.
curl -sS "$HALO/api/v1/devices/$ID/revoke" -H "Authorization: Bearer $ADMIN" \\
  -H 'Content-Type: application/json' -d '{"reason":"lost"}'; echo
curl -sS -i "$HALO/api/v1/auth/device" -H "Authorization: Bearer $CREDENTIAL"; echo
`.trim();
}

/** A word that the shell takes as it is. */
function quoted(text: string): string {
  return /^[A-Za-z0-9_./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function indent(text: string): string {
  return text.replaceAll(/^(?=.)/gm, '  ');
}
