"""Makes files of packets, for tests of what reads them."""

import struct

CLIENT, SERVER = (b"\x0a\0\0\x01", 50000), (b"\x0a\0\0\x02", 61613)
SYN, FIN, ACK = 2, 1, 16


def tcp(source, target, number, data=b"", flags=ACK):
    segment = struct.pack(">HHIIBBHHH", source[1], target[1], number % 2**32, 0, 5 << 4, flags, 1000, 0, 0) + data
    if len(source[0]) == 16:
        return struct.pack(">IHBB", 6 << 28, len(segment), 6, 64) + source[0] + target[0] + segment
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0)
    return head + source[0] + target[0] + segment


def ethernet(ip: bytes, tag: bool = False) -> bytes:
    kind = b"\x86\xdd" if ip[:1] == b"`" else b"\x08\0"
    return bytes(12) + (b"\x81\0\0\x01" if tag else b"") + kind + ip + b"\xee" * max(0, 46 - len(ip))


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def pcapng(packets: list[tuple[int, bytes]], *, link: int = 1, order: str = "<", unit: int | None = None) -> bytes:
    options = b"" if unit is None else struct.pack(order + "HHB3xHH", 9, 1, unit, 0, 0)
    parts = [
        *(section(order), block(1, struct.pack(order + "HHI", link, 0, 0) + options, order)),
        block(5, bytes(12), order),  # statistics: passed over
    ]
    for ticks, data in packets:
        head = struct.pack(order + "IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
        parts.append(block(6, head + data, order))
    return b"".join(parts)


def pcap(packets: list[tuple[int, bytes]], *, link: int = 1) -> bytes:
    parts = [struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)]
    parts += [struct.pack(">IIII", at // 10**6, at % 10**6, len(data), len(data)) + data for at, data in packets]
    return b"".join(parts)
