/** What `halo-server serve --dev` says once it is ready: where things are, and what to paste. */
import { resolve } from 'node:path';

/** What the welcome tells. */
export interface WelcomeFacts {
  readonly version: string;
  /** The server's own address, such as `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly metricsUrl: string;
  readonly dataDir: string;
  readonly adminTokenFile: string;
}

/**
 * The text, with commands for `sh` that need only curl and sed. They work pasted as they are, one
 * block after the other or all at once, in any folder: a test does it. They contain no comments,
 * which not every shell understands at its prompt.
 */
export function welcomeText(facts: WelcomeFacts): string {
  // Absolute, since the commands may be pasted in another folder.
  const adminTokenFile = resolve(facts.adminTokenFile);
  return `
Halos ${facts.version} is ready.

  address:      ${facts.url}
  data:         ${resolve(facts.dataDir)}
  admin token:  ${adminTokenFile}
  metrics:      ${facts.metricsUrl}

Paste this into another terminal: a token that lets one device in, and the device that spends it.

${enrolCommands(facts.url, adminTokenFile)}

What a gateway asks for every request: 200, and whose device it is.

    curl -sS -i "$HALO/api/v1/auth/device" -H "Authorization: Bearer $CREDENTIAL"; echo

Revoke the device, and from the next request on it is refused: 403, device_revoked.

    curl -sS "$HALO/api/v1/devices/$ID/revoke" -H "Authorization: Bearer $ADMIN" \\
      -H 'Content-Type: application/json' -d '{"reason":"lost"}'; echo
    curl -sS -i "$HALO/api/v1/auth/device" -H "Authorization: Bearer $CREDENTIAL"; echo

More: ${facts.url}/openapi.json. Stop with Ctrl-C.
`;
}

function enrolCommands(url: string, adminTokenFile: string): string {
  return String.raw`    HALO=${url}
    ADMIN=$(sed 's/.*://;q' ${quoted(adminTokenFile)})
    TOKEN=$(curl -sS "$HALO/api/v1/enrollment-tokens" -H "Authorization: Bearer $ADMIN" \
      -H 'Content-Type: application/json' -d '{"user":"ann"}' |
      sed 's/.*"token":"\([^"]*\)".*/\1/')
    DEVICE=$(curl -sS "$HALO/api/v1/enroll" -H 'Content-Type: application/json' \
      -d '{"token":"'"$TOKEN"'","name":"laptop","platform":"linux"}')
    ID=$(printf '%s\n' "$DEVICE" | sed 's/.*"id":"\([^"]*\)".*/\1/')
    CREDENTIAL=$(printf '%s\n' "$DEVICE" | sed 's/.*"credential":"\([^"]*\)".*/\1/')
    printf '%s\n' "$DEVICE"`;
}

/** A word that the shell takes as it is. */
function quoted(text: string): string {
  return /^[A-Za-z0-9_./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
