/**
 * User names as the whole product sees them. They are made canonical once, here, wherever one comes
 * in: white space around the name removed, NFC, lower case, and NFC again since lower-casing can
 * take a character apart. So killing `Alice ` kills `alice`.
 */

/** The one spelling under which a user is stored, compared and killed. */
export function canonicalUser(name: string): string {
  return name.trim().normalize('NFC').toLowerCase().normalize('NFC');
}

/** Visible ASCII without `%`: what travels in a header as it is. */
const HEADER_SAFE = /^[!-$&-~]*$/;

/** A name as a header value: UTF-8, percent-encoded outside visible ASCII and for `%` (API.md). */
export function headerEncoded(text: string): string {
  if (HEADER_SAFE.test(text)) return text;
  let encoded = '';
  for (const byte of Buffer.from(text, 'utf8')) {
    encoded +=
      byte > 0x20 && byte < 0x7f && byte !== 0x25
        ? String.fromCharCode(byte)
        : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded;
}
