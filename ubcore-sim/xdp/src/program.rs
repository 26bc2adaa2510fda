//! The program that looks at each frame of an interface, before the kernel makes anything of it.

use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, BorrowedFd};

use urma_mem::bpf::BpfInstruction;

// linux/bpf.h and the instruction set of its documentation: loads, jumps and arithmetic of 64 bits, unless the name says otherwise.
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_WIDE: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_VALUE: u8 = 0xb7;
const ADD_VALUE: u8 = 0x07;
const JUMP_GREATER: u8 = 0x2d;
const JUMP_OTHER: u8 = 0x55;
const JUMP_OTHER_32: u8 = 0x56;
const JUMP_SET: u8 = 0x45;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

const _: () =
    assert!(cfg!(target_endian = "little"), "values are compared as such a machine loads them");

/// The second half of a wide load is a descriptor.
const MAP_DESCRIPTOR: u8 = 1;
const REDIRECT_MAP: i32 = 51;
/// The kernel takes the frame.
const XDP_PASS: i32 = 2;

// Fields of `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

// Offsets in a frame: Ethernet, IPv4 without options, UDP.
const ETHERTYPE: i16 = 12;
const VERSION: i16 = 14;
const FRAGMENT: i16 = 20;
const PROTOCOL: i16 = 23;
const TO_ADDRESS: i16 = 30;
const TO_PORT: i16 = 36;
const FRONT: i32 = 42;

/// Gives unfragmented UDP over IPv4 without options, to one port of one address, to the socket that `sockets` has for the frame's
/// queue; passes all else, and what has no socket, to the kernel.
#[must_use]
pub fn steer(to: SocketAddrV4, sockets: BorrowedFd<'_>) -> Vec<BpfInstruction> {
    let port = i32::from(to.port().to_be());
    let address = i32::from_le_bytes(to.ip().octets());
    let map = sockets.as_raw_fd();
    // Registers: 1 the frame's description, 2 its first byte, 3 its end, 4 and 5 for what is compared.
    let tests = [
        instruction(LOAD_WORD, 2, 1, DATA, 0),
        instruction(LOAD_WORD, 3, 1, DATA_END, 0),
        instruction(MOVE, 4, 2, 0, 0),
        instruction(ADD_VALUE, 4, 0, 0, FRONT),
        instruction(JUMP_GREATER, 4, 3, PASS, 0),
        instruction(LOAD_HALF, 5, 2, ETHERTYPE, 0),
        instruction(JUMP_OTHER, 5, 0, PASS, i32::from(0x0800_u16.to_be())),
        instruction(LOAD_BYTE, 5, 2, VERSION, 0),
        instruction(JUMP_OTHER, 5, 0, PASS, 0x45),
        instruction(LOAD_BYTE, 5, 2, PROTOCOL, 0),
        instruction(JUMP_OTHER, 5, 0, PASS, 17),
        instruction(LOAD_HALF, 5, 2, FRAGMENT, 0),
        instruction(JUMP_SET, 5, 0, PASS, i32::from(0x3fff_u16.to_be())),
        instruction(LOAD_WORD, 5, 2, TO_ADDRESS, 0),
        instruction(JUMP_OTHER_32, 5, 0, PASS, address),
        instruction(LOAD_HALF, 5, 2, TO_PORT, 0),
        instruction(JUMP_OTHER, 5, 0, PASS, port),
    ];
    let found = [
        instruction(LOAD_WORD, 2, 1, QUEUE, 0),
        instruction(LOAD_WIDE, 1, MAP_DESCRIPTOR, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE_VALUE, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ];
    let other = [instruction(MOVE_VALUE, 0, 0, 0, XDP_PASS), instruction(EXIT, 0, 0, 0, 0)];
    let end = tests.len() + found.len();
    let resolved = tests.into_iter().enumerate().map(|(at, mut step)| {
        if step[2..4] == PASS.to_le_bytes() {
            let distance = i16::try_from(end - at - 1).unwrap_or(0);
            step[2..4].copy_from_slice(&distance.to_le_bytes());
        }
        step
    });
    resolved.chain(found).chain(other).collect()
}

/// Where the frame goes to the kernel: replaced by the distance to there.
const PASS: i16 = i16::MAX;

/// One instruction of a machine whose low bytes come first.
fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> BpfInstruction {
    let ([o0, o1], [v0, v1, v2, v3]) = (offset.to_le_bytes(), value.to_le_bytes());
    [code, from << 4 | to, o0, o1, v0, v1, v2, v3]
}
