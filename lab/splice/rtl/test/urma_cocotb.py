"""The golden schedules and random messages on one engine, as readable tests for cocotb.

Owns: a driver, a monitor. Takes: the golden file (URMA_GOLDEN), the scheme (URMA_SCHEME), parameters of the top
module as it was built. Gives: one test per question. Must not: know how an engine works.
"""

import json
import os
import random
import zlib

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer

SCHEME = os.environ["URMA_SCHEME"]
WIDTH = 64
with open(os.environ["URMA_GOLDEN"], encoding="utf-8") as golden:
    GOLDEN = json.load(golden)


def payload(message, at):
    """Byte of a golden message."""
    return (131 * message + 7 * at + (at >> 8)) % 256


def beats_of(number, message):
    """Beats of a message as (bytes, first, last, tag, log2 of the MTU); an empty one has one beat."""
    chunks, at = [], 0
    for piece in message["pieces"]:
        left, room = piece["len"], WIDTH - piece["offset"] % WIDTH
        while left > 0:
            size = min(left, room)
            chunks.append(bytes(payload(number, at + k) for k in range(size)))
            at, left, room = at + size, left - size, WIDTH
    chunks = chunks or [b""]
    mtu = message["mtu"].bit_length() - 1
    return [(chunk, k == 0, k + 1 == len(chunks), number, mtu) for k, chunk in enumerate(chunks)]


class Bench:
    """Drives beats and keeps what leaves: packets as dictionaries, with cycles of acceptance, header and end."""

    def __init__(self, dut):
        self.dut, self.cycle, self.packets, self.accepted = dut, 0, [], []

    async def reset(self):
        """Two cycles of reset; signals change at the falling edge."""
        cocotb.start_soon(Clock(self.dut.clk, 10, "step").start())
        self.dut.rst.value, self.dut.in_valid.value, self.dut.out_ready.value = 1, 0, 1
        for _ in range(2):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    async def run(self, beats, bubbles=0.0, pressure=0.0, idle_most=200, seed=1):
        """Offers all beats, then waits until nothing left the engine for `idle_most` cycles."""
        draw, waiting, idle, dut = random.Random(seed), list(beats), 0, self.dut
        offered = None
        while idle < idle_most:
            if offered is None and waiting and draw.random() >= bubbles:
                offered = waiting.pop(0)
                data, first, last, tag, mtu = offered
                dut.in_data.value = int.from_bytes(data + b"\xaa" * (WIDTH - len(data)), "little")
                dut.in_len.value, dut.in_first.value, dut.in_last.value = len(data), int(first), int(last)
                dut.in_tag.value, dut.in_mtu.value = tag, mtu
            dut.in_valid.value = int(offered is not None)
            ready = draw.random() >= pressure
            dut.out_ready.value = int(ready)
            await Timer(4, "step")
            await ReadOnly()
            idle += 1
            if offered is not None and dut.in_ready.value:
                self.accepted.append((offered[3], len(offered[0]), self.cycle))
                offered, idle = None, 0
            if dut.out_valid.value and ready:
                self.seen()
                idle = 0
            self.cycle += 1
            await FallingEdge(dut.clk)

    def seen(self):
        """Takes a header or a beat."""
        dut = self.dut
        if dut.out_header.value:
            header = {name: int(getattr(dut, f"out_{name}").value) for name in ("tag", "index", "len", "first", "last")}
            self.packets.append(header | {"bytes": b"", "header": self.cycle, "end": self.cycle})
        else:
            packet, size = self.packets[-1], int(dut.out_bytes.value)
            # Bytes beyond the length may be undefined.
            bits = str(dut.out_data.value)[-8 * size:]
            packet["bytes"] += int(bits, 2).to_bytes(size, "little")
            packet["end"] = self.cycle

    def first_byte(self, packet, messages):
        """Cycle in which the packet's first byte was accepted."""
        offset, seen = packet["index"] * messages[packet["tag"]]["mtu"], 0
        for tag, size, cycle in self.accepted:
            if tag == packet["tag"]:
                seen += size
                if seen > offset or seen == 0:
                    return cycle
        return None


def cut(messages):
    """Packets of the messages: tag, index, length, first, last, CRC-32 of the payload."""
    packets = []
    for number, message in enumerate(messages):
        total = sum(piece["len"] for piece in message["pieces"])
        data = bytes(payload(number, at) for at in range(total))
        parts = [data[at:at + message["mtu"]] for at in range(0, total, message["mtu"])] or [b""]
        for index, part in enumerate(parts):
            last = int(index + 1 == len(parts))
            packets.append((number, index, len(part), int(index == 0), last, zlib.crc32(part)))
    return packets


def check(bench, messages):
    """Compares packets with what the messages say."""
    seen = [(p["tag"], p["index"], p["len"], p["first"], p["last"], zlib.crc32(p["bytes"])) for p in bench.packets]
    assert seen == cut(messages), f"seen {seen}, right {cut(messages)}"


@cocotb.test()
async def golden_bytes(dut):
    """All functional cases of this width in one run, whose packets have the golden CRC-32."""
    bench = Bench(dut)
    await bench.reset()
    cases = [case for case in GOLDEN["functional"] if case["beat_bytes"] == WIDTH]
    assert cases
    for case in cases:
        bench.packets, messages = [], case["messages"]
        beats = [beat for number, message in enumerate(messages) for beat in beats_of(number, message)]
        assert len(beats) == case["beats_in"], case["name"]
        await bench.run(beats)
        golden = [(p["message"], p["len"], p["first"], p["last"], int(p["crc32"], 16)) for p in case["packets"]]
        seen = [(p["tag"], p["len"], bool(p["first"]), bool(p["last"]), zlib.crc32(p["bytes"])) for p in bench.packets]
        assert seen == golden, f"{case['name']}: seen {seen}, right {golden}"


@cocotb.test()
async def golden_cycles(dut):
    """The schedule of five messages: acceptance, header and end of each packet."""
    case = next(c for c in GOLDEN["schedules"] if c["scheme"] == SCHEME and c["name"] == os.environ["URMA_CASE"])
    bench = Bench(dut)
    await bench.reset()
    beats = [beat for number, message in enumerate(case["messages"]) for beat in beats_of(number, message)]
    await bench.run(beats)
    rows = [
        [p["tag"], p["len"], p["first"], p["last"], bench.first_byte(p, case["messages"]), p["header"], p["end"]]
        for p in bench.packets
    ]
    assert rows == case["schedule"], f"seen {rows}, right {case['schedule']}"


@cocotb.test()
async def random_messages(dut):
    """Random messages under bubbles and back-pressure come out whole."""
    draw, messages = random.Random(7), []
    for _ in range(40):
        lengths = [draw.choice([0, 1, WIDTH - 1, WIDTH, WIDTH + 1, 130, 600]) for _ in range(draw.randint(0, 3))]
        pieces = [{"offset": draw.randrange(WIDTH), "len": length} for length in lengths]
        messages.append({"mtu": draw.choice([256, 512]), "pieces": pieces})
    bench = Bench(dut)
    await bench.reset()
    beats = [beat for number, message in enumerate(messages) for beat in beats_of(number, message)]
    await bench.run(beats, bubbles=0.3, pressure=0.3)
    check(bench, messages)
    names = ("empty_beat", "beat_too_long", "mtu_changed", "mtu_range", "first_missing")
    assert not any(int(getattr(dut, f"err_{name}").value) for name in names)
    assert int(dut.too_long.value) == 0
