"""RC2 decryption in CBC mode (RFC 2268): old PKCS#12 files encrypt their certificates with it."""

from __future__ import annotations

_PI = bytes.fromhex(
    "d978f9c419ddb5ed28e9fd794aa0d89dc67e37832b76538e624c6488448bfba2179a59f587b34f1361456d8d09817d32"
    "bd8f40eb86b77b0bf09521225c6b4e8254d66593ce60b21c7356c014a78cf1dc1275ca1f3bbee4d1423dd430a33cb626"
    "6fbf0eda4669075727f21d9bbc944303f811c7f690ef3ee706c3d52fc8661ed708e8eade8052eef784aa72ac354d6a2a"
    "961ad2715a1549744b9fd05e0418a4ecc2e0416e0f51cbcc2491af50a1f47039997c3a8523b8b47afc02365b25559731"
    "2d5dfa98e38a92ae05df2910676cbac9d300e6cfe19ea82c6316013f58e289a90d38341bab33ffb0bb480c5fb9b1cd2e"
    "c5f3db47e5a59c770aa62068fe7fc1ad"
)


def decrypt_cbc(key: bytes, iv: bytes, data: bytes) -> bytes:
    schedule = _expanded(key)
    out = bytearray()
    before = iv
    for at in range(0, len(data), 8):
        block = data[at : at + 8]
        out += bytes(a ^ b for a, b in zip(_decrypted(schedule, block), before, strict=True))
        before = block
    return bytes(out)


def _expanded(key: bytes) -> list[int]:
    """Expand the key to 64 words of 16 bits; the effective length is the length of the key."""
    table = bytearray(key.ljust(128, b"\0"))
    size = len(key)
    for at in range(size, 128):
        table[at] = _PI[(table[at - 1] + table[at - size]) & 255]
    table[128 - size] = _PI[table[128 - size]]
    for at in range(127 - size, -1, -1):
        table[at] = _PI[table[at + 1] ^ table[at + size]]
    return [table[2 * word] | table[2 * word + 1] << 8 for word in range(64)]


_SHIFTS = (1, 2, 3, 5)


def _decrypted(schedule: list[int], block: bytes) -> bytes:
    words = [int.from_bytes(block[at : at + 2], "little") for at in range(0, 8, 2)]
    step = 63
    for round_ in range(15, -1, -1):
        for at in (3, 2, 1, 0):
            shift = _SHIFTS[at]
            value = words[at] >> shift | words[at] << (16 - shift)
            a, b, c = words[at - 1], words[at - 2], words[at - 3]
            words[at] = (value - schedule[step] - (a & b) - (~a & c)) & 0xFFFF
            step -= 1
        if round_ in {5, 11}:
            for at in (3, 2, 1, 0):
                words[at] = (words[at] - schedule[words[at - 1] & 63]) & 0xFFFF
    return b"".join(word.to_bytes(2, "little") for word in words)
