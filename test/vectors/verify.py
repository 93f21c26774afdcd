#!/usr/bin/env python3
"""A second verifier of evidence, written from docs/evidence.md alone, with the standard library only.

    verify.py [--key HEX] [--checkpoint FILE] FILE|DIR     verifies one chain
    verify.py --cases cases.jsonl                          compares itself with the vectors

Slow on purpose: Ed25519 (RFC 8032) is spelled out below, at some hundred signatures a second.
"""
import hashlib
import json
import math
import os
import re
import sys
from decimal import Decimal

LINE_BYTES_MAX = 263168
DEPTH_MAX = 32
SAFE_MAX = 2**53 - 1

# ---------------------------------------------------------------- Ed25519, RFC 8032 §5.1

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)


def recover_x(y, sign):
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    if x2 == 0:
        return None if sign else 0
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P != 0:
        x = x * ROOT_OF_MINUS_1 % P
    if (x * x - x2) % P != 0:
        return None
    return P - x if x & 1 != sign else x


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE_X = recover_x(BASE_Y, 0)
BASE = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)


def add(p, q):
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c = 2 * p[3] * q[3] * D % P
    d = 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def multiply(s, p):
    q = (0, 1, 1, 0)
    while s > 0:
        if s & 1:
            q = add(q, p)
        p = add(p, p)
        s >>= 1
    return q


def is_equal(p, q):
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


def decompress(data):
    y = int.from_bytes(data, 'little')
    sign = y >> 255
    y &= (1 << 255) - 1
    x = recover_x(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


def is_signature(public_key, message, signature):
    a, r = decompress(public_key), decompress(signature[:32])
    s = int.from_bytes(signature[32:], 'little')
    if a is None or r is None or s >= L:
        return False
    digest = hashlib.sha512(signature[:32] + public_key + message).digest()
    k = int.from_bytes(digest, 'little') % L
    return is_equal(multiply(s, BASE), add(r, multiply(k, a)))


# ---------------------------------------------------------------- canonical JSON, RFC 8785


class NoForm(Exception):
    """The value has no canonical form."""


def canonical_number(value):
    if math.isinf(value) or math.isnan(value):
        raise NoForm
    if value == 0:
        return '0'
    sign = '-' if value < 0 else ''
    _, digits, exponent = Decimal(repr(abs(value))).as_tuple()
    text = ''.join(map(str, digits)).lstrip('0')
    stripped = text.rstrip('0')
    exponent += len(text) - len(stripped)
    k, n = len(stripped), len(stripped) + exponent
    if k <= n <= 21:
        return sign + stripped + '0' * (n - k)
    if 0 < n <= 21:
        return sign + stripped[:n] + '.' + stripped[n:]
    if -6 < n <= 0:
        return sign + '0.' + '0' * -n + stripped
    mantissa = stripped if k == 1 else stripped[0] + '.' + stripped[1:]
    return f'{sign}{mantissa}e{"+" if n > 0 else "-"}{abs(n - 1)}'


def canonical_string(value):
    try:
        value.encode('utf-8')
    except UnicodeEncodeError:
        raise NoForm from None
    return json.dumps(value, ensure_ascii=False)


def canonical(value, depth=DEPTH_MAX):
    if value is None:
        return 'null'
    if value is True:
        return 'true'
    if value is False:
        return 'false'
    if isinstance(value, str):
        return canonical_string(value)
    if isinstance(value, float):
        return canonical_number(value)
    if depth == 0:
        raise NoForm
    if isinstance(value, list):
        return '[' + ','.join(canonical(item, depth - 1) for item in value) + ']'
    names = sorted(value, key=lambda name: name.encode('utf-16-be', 'surrogatepass'))
    members = (f'{canonical_string(name)}:{canonical(value[name], depth - 1)}' for name in names)
    return '{' + ','.join(members) + '}'


def refuse_constant(text):
    raise ValueError(text)


def parse(line):
    """The object on a line, or None. All numbers are doubles, as RFC 8785 has them."""
    try:
        text = line.decode('utf-8')
        value = json.loads(text, parse_int=float, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


# ---------------------------------------------------------------- records


def matching(pattern):
    expression = re.compile(pattern)
    return lambda value: isinstance(value, str) and expression.fullmatch(value) is not None


def is_whole(value):
    return isinstance(value, float) and value.is_integer() and abs(value) <= SAFE_MAX


def is_party(value):
    return (
        isinstance(value, dict)
        and set(value) == {'type', 'id'}
        and all(isinstance(part, str) and part != '' for part in value.values())
    )


is_hash = matching('[0-9a-f]{64}')
is_public_key = matching('[0-9a-f]{64}')
is_sig = matching('[0-9a-f]{128}')
is_key_id = matching('[0-9a-f]{32}')
is_time = matching('[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z')
is_kind_form = matching('[a-z][a-z0-9_-]*(\\.[a-z][a-z0-9_-]*)*')

FIELDS = {
    'at': is_time,
    'by': is_party,
    'chained_at': is_time,
    'data': lambda value: isinstance(value, dict),
    'hash': is_hash,
    'key_id': is_key_id,
    'kind': lambda value: is_kind_form(value) and len(value) <= 64,
    'masked': lambda value: isinstance(value, list)
    and all(isinstance(item, str) for item in value),
    'prev_hash': is_hash,
    'ref': matching('ev_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'),
    'seq': lambda value: is_whole(value) and value >= 0,
    'sig': is_sig,
    'v': lambda value: isinstance(value, float) and value == 1,
}

STARTED = 'chain.started'
CHECKPOINT = 'chain.checkpoint'
ROTATED = 'chain.key_rotated'
RESTORED = 'chain.restore_accepted'


class Finding(Exception):
    """What is wrong first."""

    def __init__(self, check, seq, status='tampered'):
        super().__init__(check)
        self.check, self.seq, self.status = check, seq, status


def read_record(line, expected_seq):
    record = parse(line) if len(line) <= LINE_BYTES_MAX else None
    if record is None:
        raise Finding('line', expected_seq)
    version = record.get('v')
    if is_whole(version) and version > 1:
        raise Finding('version', expected_seq, 'unreadable')
    if set(record) != set(FIELDS) or not all(FIELDS[name](record[name]) for name in FIELDS):
        raise Finding('fields', expected_seq)
    try:
        form = canonical(record)
    except NoForm:
        raise Finding('canonical', expected_seq) from None
    if form.encode('utf-8') != line:
        raise Finding('canonical', expected_seq)
    return record


def hash_of(record):
    unsigned = {name: value for name, value in record.items() if name not in ('hash', 'sig')}
    text = 'evidence-record-v1\n' + canonical(unsigned)
    return hashlib.sha256(text.encode('utf-8')).hexdigest()


def key_id_of(public_key):
    return hashlib.sha256(bytes.fromhex(public_key)).hexdigest()[:32]


def is_genesis(data):
    return (
        set(data) == {'hash', 'signature', 'public_key'}
        and data['hash'] == 'sha-256'
        and data['signature'] == 'ed25519'
        and is_public_key(data['public_key'])
    )


def is_checkpoint(record, chain):
    data = record['data']
    return (
        set(data) == {'chain', 'head_hash', 'size'}
        and is_hash(data['chain'])
        and is_whole(data['size'])
        and data['size'] == record['seq']
        and data['head_hash'] == record['prev_hash']
        and chain in (None, data['chain'])
    )


def is_rotation(record):
    data = record['data']
    if set(data) != {'next_key_id', 'next_public_key', 'proof'}:
        return False
    next_id, public_key, proof = data['next_key_id'], data['next_public_key'], data['proof']
    if not (is_key_id(next_id) and is_public_key(public_key) and is_sig(proof)):
        return False
    if next_id != key_id_of(public_key) or next_id == record['key_id']:
        return False
    message = f'evidence-rotation-v1\n{record["prev_hash"]}\n{record["key_id"]}\n{next_id}'
    return is_signature(bytes.fromhex(public_key), message.encode(), bytes.fromhex(proof))


def is_restore(record):
    data = record['data']
    if set(data) != {'lost_from', 'lost_to', 'lost_hash'} or not is_hash(data['lost_hash']):
        return False
    first, last = data['lost_from'], data['lost_to']
    return is_whole(first) and is_whole(last) and 1 <= first <= last and first <= record['seq']


# ---------------------------------------------------------------- the chain


class Chain:
    """What is kept between two lines."""

    def __init__(self, key, checkpoint):
        self.pinned_key, self.pin = key, checkpoint
        self.seq = self.hash = self.id = self.key_id = self.public_key = self.kind = None
        self.first_seq = None
        self.records = 0
        self.is_key_seen = self.is_checkpoint_seen = False

    def next_seq(self):
        return 0 if self.seq is None else self.seq + 1

    def use_key(self, key_id, public_key):
        self.key_id, self.public_key = key_id, public_key
        if public_key is not None and public_key == self.pinned_key:
            self.is_key_seen = True

    def accept(self, line):
        record = read_record(line, self.next_seq())
        seq, kind, data = int(record['seq']), record['kind'], record['data']
        place = seq if self.seq is None else self.next_seq()
        if self.seq is not None and seq != place:
            raise Finding('seq', place)
        if self.seq is not None or seq == 0:
            if record['prev_hash'] != (self.hash or '0' * 64):
                raise Finding('prev_hash', place)
        if record['hash'] != hash_of(record):
            raise Finding('hash', place)
        if kind.startswith('chain.') and kind not in (STARTED, CHECKPOINT, ROTATED, RESTORED):
            raise Finding('kind', place)
        self.accept_genesis(record, place)
        if record['key_id'] != self.key_id:
            raise Finding('key_id', place)
        if kind == CHECKPOINT and not is_checkpoint(record, self.id):
            raise Finding('checkpoint', place)
        if kind == ROTATED and not is_rotation(record):
            raise Finding('key_rotated', place)
        if kind == RESTORED and not is_restore(record):
            raise Finding('restore_accepted', place)
        if kind == CHECKPOINT and self.id is None:
            self.id = data['chain']
        self.compare_pin(record, place)
        if self.public_key is not None:
            message, signature = bytes.fromhex(record['hash']), bytes.fromhex(record['sig'])
            if not is_signature(bytes.fromhex(self.public_key), message, signature):
                raise Finding('signature', place)
        self.seq, self.hash, self.kind = seq, record['hash'], kind
        self.first_seq = seq if self.first_seq is None else self.first_seq
        self.records += 1
        if kind == ROTATED:
            self.use_key(data['next_key_id'], data['next_public_key'])

    def accept_genesis(self, record, place):
        if (record['kind'] == STARTED) != (record['seq'] == 0):
            raise Finding('genesis', place)
        if record['kind'] == STARTED:
            if not is_genesis(record['data']):
                raise Finding('genesis', place)
            public_key = record['data']['public_key']
            self.id = record['hash']
            self.use_key(key_id_of(public_key), public_key)
        elif self.key_id is None:
            key = self.pinned_key
            is_pinned = key is not None and record['key_id'] == key_id_of(key)
            self.use_key(record['key_id'], key if is_pinned else None)

    def compare_pin(self, record, place):
        if self.pin is None:
            return
        if self.id is not None and self.id != self.pin['data']['chain']:
            raise Finding('pinned_checkpoint', place)
        if record['seq'] == self.pin['seq']:
            if record['hash'] != self.pin['hash']:
                raise Finding('pinned_checkpoint', place)
            self.is_checkpoint_seen = True

    def finish(self, is_torn, ends_at_head):
        if self.pinned_key is not None and self.first_seq == 0 and not self.is_key_seen:
            raise Finding('pinned_key', 0)
        if self.first_seq != 0:
            raise Finding('beginning', 0, 'incomplete')
        is_short = self.pin is not None and self.pin['seq'] > self.seq
        is_ended = ends_at_head or self.kind == CHECKPOINT
        if is_torn or is_short or not is_ended:
            raise Finding('end', self.next_seq(), 'incomplete')

    def is_pinned(self):
        if self.pinned_key is None and self.pin is None:
            return False
        has_key = self.pinned_key is None or self.is_key_seen
        return has_key and (self.pin is None or self.is_checkpoint_seen)


def verify(content, ends_at_head, key=None, checkpoint=None):
    chain = Chain(key, checkpoint)
    *lines, rest = content.split(b'\n')
    result = {'status': 'verified'}
    try:
        for line in lines:
            chain.accept(line)
        chain.finish(rest != b'', ends_at_head)
    except Finding as finding:
        result = {'status': finding.status, 'seq': int(finding.seq), 'check': finding.check}
    is_good = result['status'] in ('verified', 'incomplete')
    records = 0 if result.get('check') == 'pinned_key' else chain.records
    return {**result, 'records': records, 'pinned': is_good and chain.is_pinned()}


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def verify_path(path, key, checkpoint_path):
    checkpoint = parse(read(checkpoint_path)) if checkpoint_path else None
    if not os.path.isdir(path):
        return verify(read(path), False, key, checkpoint)
    names = sorted(name for name in os.listdir(path) if re.fullmatch('[0-9]{16}\\.jsonl', name))
    content = b''.join(read(os.path.join(path, name)) for name in names)
    return verify(content, True, key, checkpoint)


def compare_cases(cases_path):
    folder = os.path.dirname(os.path.abspath(cases_path))
    wrong = 0
    cases = [json.loads(line) for line in read(cases_path).splitlines()]
    for case in cases:
        path = os.path.join(folder, case.get('file') or case['directory'])
        pin = case.get('checkpoint')
        found = verify_path(path, case.get('key'), pin and os.path.join(folder, pin))
        names = ('status', 'pinned', 'records', 'seq', 'check')
        expected = {name: case[name] for name in names if name in case}
        if found != expected:
            wrong += 1
            print(f'{case["name"]}: expected {expected}, found {found}')
    print(f'{len(cases)} cases, {wrong} wrong')
    return 1 if wrong or not cases else 0


def main(words):
    options = {}
    while words and words[0] in ('--key', '--checkpoint', '--cases'):
        options[words[0]], words = words[1], words[2:]
    if '--cases' in options:
        return compare_cases(options['--cases'])
    result = verify_path(words[0], options.get('--key'), options.get('--checkpoint'))
    print(json.dumps(result))
    return {'verified': 0, 'tampered': 10, 'incomplete': 11, 'unreadable': 12}[result['status']]


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
