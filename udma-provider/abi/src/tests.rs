//! Every layout: round trips under random values, golden words from the published positions.
//!
//! A round trip alone cannot see two swapped fields, so each layout also has words written by hand
//! from the bit positions of the UDMA hardware (UMDK release 26.06).
#![expect(clippy::cast_possible_truncation, reason = "tests cut words into their parts")]

use proptest::prelude::*;

use crate::{
    Addressed, Atomic, CmdStatus, Cqe, CqeStatus, Eqe, MessageBody, MessageEntry, MovableBlock,
    OneSided, Opcode, RawEid, RegisterRegion, Rqe, Sge, Sqe, Tail, Tailed,
    cmd::{
        self, Access, CmdQueueKind, Command, CreateQueue, Mode, QueueFlags, QueueState, RegisterSeg,
    },
    counters::ModelCounter,
    cqe::{RecvDone, RecvForm, SendDone, SendDoneForm, is_received},
    doorbell::{CqArm, JfcDoorbell},
    eqe::{self, EqeKind},
    sqe::{SQE_WORDS_MAX, SqeError, SqeFlags, SqeTargetKind},
};

proptest! {
    /// A message reads and writes its block as the whole entry does.
    #[test]
    fn a_message_of_one_block_is_the_entry(
        bits in any::<[u64; 4]>(),
        imm in any::<Option<u64>>(),
        token in any::<Option<u32>>(),
        kind in 0u8..3,
        inline in any::<Option<u8>>(),
    ) {
        let [a, b, c, d] = bits;
        let inline = inline.map(|len| usize::from(len) % (MessageEntry::INLINE_MAX + 1));
        let is_inline = SqeFlags::INLINE;
        let mut flags = SqeFlags::from_bits_truncate(a as u8);
        flags.set(is_inline, inline.is_some());
        let body = match inline {
            Some(len) => MessageBody::Inline(len, [c, d]),
            None => MessageBody::Piece(Sge::from_words([c, d])),
        };
        let message = MessageEntry {
            entry_idx: b as u16,
            owner: b >> 16 & 1 == 1,
            flags,
            imm,
            tpn: (b >> 24) as u32 & 0xff_ffff,
            target_kind: SqeTargetKind::from_code(kind).unwrap(),
            target_id: (a >> 8) as u32 & 0xf_ffff,
            target_hint: (a >> 40) as u8,
            token,
            body,
        };
        let block = message.encode(EID);
        prop_assert!(MessageEntry::is_it(&block));
        prop_assert_eq!(MessageEntry::decode(&block), Some(message));
        let sqe = Sqe {
            entry_idx: message.entry_idx,
            owner: message.owner,
            flags,
            token_en: token.is_some(),
            token_value: token.unwrap_or(0),
            target_kind: message.target_kind,
            target_id: message.target_id,
            target_hint: message.target_hint,
            inline_len: inline.unwrap_or(0) as u16,
            sge_num: u8::from(inline.is_none()),
            tpn: message.tpn,
            rmt_eid: EID,
            imm: imm.unwrap_or(0),
            ..Sqe::new(if imm.is_some() { Opcode::SendImm } else { Opcode::Send })
        };
        let mut words = [0; SQE_WORDS_MAX];
        sqe.encode(&mut words);
        (words[6], words[7]) = (c, d);
        prop_assert_eq!(&block[..], &words[..8]);
    }

    /// The completion of a message from its form is the whole one.
    #[test]
    fn a_receive_completion_of_a_form_is_the_entry(
        bits in any::<[u64; 4]>(),
        is_jetty in any::<bool>(),
        owner in any::<bool>(),
    ) {
        let [a, b, imm, user_data] = bits;
        let cqe = Cqe {
            recv: true,
            is_jetty,
            opcode: (a & 1) as u8,
            entry_idx: b as u16,
            local_id: (a >> 8) as u32 & 0xf_ffff,
            remote_id: (a >> 32) as u32 & 0xf_ffff,
            tpn: (b >> 16) as u32 & 0xff_ffff,
            byte_cnt: (b >> 40) as u32,
            user_data,
            rmt_eid: EID,
            imm,
            ..Cqe::default()
        };
        let done = RecvDone { entry_idx: cqe.entry_idx, tpn: cqe.tpn, byte_cnt: cqe.byte_cnt, imm };
        let words = RecvForm::of(&cqe).encode(&done, owner);
        prop_assert_eq!(words, cqe.encode(owner));
        prop_assert!(is_received(words[0]) && !SendDone::is_it(words[0]));
    }
}

#[test]
fn what_is_no_message_of_one_block_is_not_read_as_one() {
    let mut w = [0; SQE_WORDS_MAX];
    let mut front = |sqe: Sqe| -> [u64; 8] {
        sqe.encode(&mut w);
        w[..8].try_into().unwrap()
    };
    let send = Sqe { sge_num: 1, ..Sqe::new(Opcode::Send) };
    assert!(MessageEntry::decode(&front(send)).is_some());
    let inline = Sqe { flags: SqeFlags::INLINE, inline_len: 17, ..send };
    for other in [
        Sqe { sge_num: 0, ..send },
        Sqe { sge_num: 2, ..send },
        inline,
        Sqe { opcode: Opcode::SendInvalidate, ..send },
        Sqe { opcode: Opcode::Write, ..send },
    ] {
        assert_eq!(MessageEntry::decode(&front(other)), None, "{other:?}");
    }
    let mut block = front(send);
    block[0] |= 3 << 29;
    assert_eq!(MessageEntry::decode(&block), None, "a target kind that there is not");
    let refused = Cqe { recv: true, status: CqeStatus::LocLen, ..Cqe::default() };
    let carried = Cqe { recv: true, inline_en: true, ..Cqe::default() };
    assert!([refused, carried, Cqe::default()].iter().all(|cqe| !is_received(cqe.encode(true)[0])));
}

const EID: RawEid = RawEid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

#[test]
fn write_sqe_has_the_published_words() {
    let sqe = Sqe {
        entry_idx: 0x1234,
        flags: SqeFlags::COMPLETE | SqeFlags::FENCE,
        token_en: true,
        target_kind: SqeTargetKind::Jetty,
        owner: true,
        target_hint: 0x5A,
        tpn: 0xAB_CDEF,
        sge_num: 1,
        seg_token_id: 0x0_4321 << 8,
        rmt_eid: EID,
        token_value: 0xDEAD_BEEF,
        remote_va: 0x1122_3344_5566_7788,
        target_id: 0xA_BCDE,
        ..Sqe::new(Opcode::Write)
    };
    let mut w = [0; SQE_WORDS_MAX];
    sqe.encode(&mut w);
    // 16: flags 0x28; 28: token_en; 29: kind 1; 31: owner | byte 4 hint, byte 5 opcode.
    assert_eq!(w[0], 0x0000_035A_B028_1234);
    assert_eq!(w[1], 0x0000_4321_01AB_CDEF);
    // The EID's bytes reversed: byte 16 of the entry is the last byte of the EID.
    assert_eq!(w[2].to_le_bytes(), [15, 14, 13, 12, 11, 10, 9, 8]);
    assert_eq!(w[3].to_le_bytes(), [7, 6, 5, 4, 3, 2, 1, 0]);
    // Ours: the queue that the request is ordered with, in bytes 36 to 38.
    assert_eq!(w[4], 0xA_BCDE_DEAD_BEEF);
    assert_eq!(w[5], 0x1122_3344_5566_7788);
    assert_eq!(w[6..], [0; 26]);
}

#[test]
fn inline_length_and_immediates_lie_where_published() {
    let mut w = [0; SQE_WORDS_MAX];
    let send = Sqe { inline_len: 0x2A5, imm: 7, target_id: 0xF_FFFF, ..Sqe::new(Opcode::SendImm) };
    send.encode(&mut w);
    assert_eq!(w[0] >> 54, 0x2A5, "inline_msg_len: 10 bits from bit 22 of the second word");
    assert_eq!(w[1] >> 32, 0xF_FFFF);
    assert_eq!(w[5], 7, "SEND_IMM: immediate at byte 40");

    let mut w = [0; SQE_WORDS_MAX];
    let imm =
        Sqe { imm: 9, seg_token_id: 0x1100, seg_token_value: 0x22, ..Sqe::new(Opcode::WriteImm) };
    imm.encode(&mut w);
    assert_eq!((w[6], w[7]), (9, 0x22_0000_1100), "WRITE_IMM: immediate at 48, token at 56");

    let mut w = [0; SQE_WORDS_MAX];
    let notify =
        Sqe { imm: 5, notify_va: 0x66, notify_token_id: 0x700, ..Sqe::new(Opcode::WriteNotify) };
    notify.encode(&mut w);
    assert_eq!((w[6], w[7], w[8]), (0x700, 0x66, 5), "token at 48, address at 56, data at 64");

    let mut w = [0; SQE_WORDS_MAX];
    Sqe { operand: 1, compare: 2, ..Sqe::new(Opcode::Cas) }.encode(&mut w);
    assert_eq!((w[8], w[9]), (1, 2), "operands at byte 64");
}

#[test]
fn cqe_has_the_published_words() {
    let cqe = Cqe {
        recv: true,
        is_jetty: true,
        opcode: 3,
        inline_en: true,
        status: CqeStatus::RemAccessAbort,
        entry_idx: 0x1234,
        local_id: 0xA_BCDE,
        remote_id: 0x5_4321,
        tpn: 0x77_8899,
        byte_cnt: 0x0BAD_CAFE,
        user_data: 0x1111_2222_3333_4444,
        rmt_eid: EID,
        imm: 0x5555_6666_7777_8888,
        inline: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
    };
    let w = cqe.encode(true);
    let dw: Vec<u32> = w.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]).collect();
    assert_eq!(dw[0], 0x0302_003F);
    assert_eq!(dw[1], 0xBCDE_1234);
    assert_eq!(dw[2], 0x0054_321A);
    assert_eq!(dw[3], 0x0077_8899);
    assert_eq!(dw[4], 0x0BAD_CAFE);
    assert_eq!((dw[5], dw[6]), (0x3333_4444, 0x1111_2222));
    assert_eq!(dw[7..11], [0x0C0D_0E0F, 0x0809_0A0B, 0x0405_0607, 0x0001_0203]);
    assert_eq!((dw[11], dw[12]), (0x7777_8888, 0x5555_6666));
    assert_eq!(dw[13..], [0x0403_0201, 0x0807_0605, 0x0C0B_0A09]);
    assert!(crate::cqe::owner_of(w[0]));
    assert!(!crate::cqe::owner_of(cqe.encode(false)[0]));
}

#[test]
fn jfc_doorbell_has_the_published_bits() {
    let db = JfcDoorbell { ci: 0xAB_CDEF, arm: Some(CqArm::Solicited), arm_sn: 2, jfcn: 0x1_2345 };
    assert_eq!(db.encode(), 0x1_2345 << 28 | 1 << 27 | 2 << 25 | 1 << 24 | 0xAB_CDEF);
}

#[test]
fn opcodes_decode_by_table_and_only_known_ones() {
    let known = (0..=255u8).filter_map(Opcode::from_code).count();
    assert_eq!(known, Opcode::ALL.len());
    for op in Opcode::ALL {
        assert_eq!(Opcode::from_code(op as u8), Some(op));
    }
    assert_eq!(Opcode::from_code(0x19), Some(Opcode::WriteAtomic));
    assert_eq!(Opcode::from_code(0xFF), None);
}

#[test]
fn statuses_map_to_distinct_codes_and_back() {
    for status in CqeStatus::ALL {
        let (code, sub, fd) = status.to_code();
        assert_eq!(CqeStatus::from_code(code, sub, fd), status);
    }
    assert_eq!(CqeStatus::from_code(6, 0, true), CqeStatus::WrFlushErrDone);
    let unknown = CqeStatus::Unknown { status: 0, substatus: 0 };
    assert_eq!(CqeStatus::from_code(0, 0, true), unknown, "success never ends a flush");
    for code in 0..=12 {
        assert_eq!(CmdStatus::from_code(code) as u8, code);
    }
    assert_eq!(CmdStatus::from_code(13), CmdStatus::Unknown);
}

/// docs/device-spec.md: queue numbers of 20 bits, pages of 4 KiB from 0x100000 on, entries of 64 and
/// 16 bytes.
#[test]
fn lengths_are_those_of_the_document() {
    assert_eq!(crate::regs::QUEUE_IDS, 0x10_0000);
    assert_eq!(crate::regs::BAR_LEN, 0x2000_0000);
    assert_eq!((crate::cqe::CQE_LEN, eqe::EQE_LEN), (64, 16));
}

#[test]
fn kinds_and_states_decode_by_table_and_only_known_ones() {
    let codes = |decode: &dyn Fn(u8) -> Option<u8>| {
        let mut known = Vec::new();
        for code in 0..=u8::MAX {
            let found = decode(code);
            assert!(found.is_none_or(|found| found == code), "{code} is read as {found:?}");
            known.extend(found);
        }
        known
    };
    assert_eq!(codes(&|code| SqeTargetKind::from_code(code).map(|kind| kind as u8)), [0, 1, 2]);
    assert_eq!(codes(&|code| CmdQueueKind::from_code(code).map(|kind| kind as u8)), [0, 1, 2]);
    assert_eq!(codes(&|code| Mode::from_code(code).map(|mode| mode as u8)), [1, 2, 4]);
    assert_eq!(codes(&|code| QueueState::from_code(code).map(|state| state as u8)), [0, 1, 2, 3]);
    let events = codes(&|code| EqeKind::from_code(code).map(|kind| kind as u8));
    assert_eq!(events, Vec::from_iter(0..=10));
}

#[test]
fn operations_have_the_families_of_the_specification() {
    use Opcode::{Send, SendImm, SendInvalidate, Write, WriteAtomic, WriteImm, WriteNotify};
    for op in Opcode::ALL {
        let is_send = matches!(op, Send | SendImm | SendInvalidate);
        assert_eq!(op.is_send(), is_send, "{op:?}");
        assert_eq!(op.consumes_receive(), is_send || op == WriteImm, "{op:?}");
        let is_write = matches!(op, Write | WriteImm | WriteNotify | WriteAtomic);
        assert_eq!(op.is_write(), is_write, "{op:?}");
        assert_eq!(op.fetches(), op.is_atomic() || op == Opcode::Read, "{op:?}");
        // The hardware's codes from compare and swap to fetch and xor.
        assert_eq!(op.is_atomic(), (0x07..=0x0F).contains(&(op as u8)), "{op:?}");
    }
}

#[test]
fn blocks_hold_the_control_part_and_what_follows() {
    let with = |opcode, sge_num, inline_len| Sqe { sge_num, inline_len, ..Sqe::new(opcode) };
    assert_eq!(with(Opcode::Write, 1, 0).blocks(), 1);
    assert_eq!(with(Opcode::Write, 10, 200).blocks(), 4, "48 bytes and 10 of 16");
    let inline = Sqe { flags: SqeFlags::INLINE, ..with(Opcode::Write, 10, 100) };
    assert_eq!(inline.blocks(), 3, "48 and 100 bytes");
    assert_eq!(with(Opcode::Swap, 1, 0).blocks(), 2);
    assert_eq!(with(Opcode::Nop, 255, 0).blocks(), 65, "more than an entry may have");
}

#[test]
fn bytes_behind_the_control_part_are_no_operands() {
    let mut w = [0; SQE_WORDS_MAX];
    let write = Sqe { sge_num: 2, ..Sqe::new(Opcode::Write) };
    write.encode(&mut w);
    w[6..].fill(u64::MAX);
    assert_eq!(Sqe::decode(&w), Ok(write));
}

#[test]
fn only_success_of_a_sender_is_read_by_halves() {
    // Bits 1, 2 and 4 to 6 of byte 0 say what was done; the rest of it, and the status, what else.
    for bit in 0..32 {
        let plain = matches!(bit, 1 | 2 | 4..=6 | 8..=15);
        assert_eq!(SendDone::is_it(1 << bit), plain, "bit {bit}");
    }
}

#[test]
fn receive_entries_skip_empty_pieces() {
    let piece = Sge { len: 8, token_id: 0x100, va: 64 };
    let rqe = Rqe::new(&[Sge::default(), piece, Sge::default(), piece]);
    assert_eq!((rqe.num, rqe.capacity()), (2, 16));
    assert_eq!(Rqe::decode(&rqe.encode()), rqe);
    assert_eq!(crate::rqe::stride(0), 16);
    assert_eq!(crate::rqe::stride(3), 64);
    assert_eq!(crate::rqe::stride(16), 256);
}

prop_compose! {
    fn any_eid()(bytes in any::<[u8; 16]>()) -> RawEid { RawEid(bytes) }
}

prop_compose! {
    /// Fields that every opcode has.
    fn any_control()(
        entry_idx in any::<u16>(), flags in 0u8..0x80, token_en in any::<bool>(), kind in 0u8..3,
        owner in any::<bool>(), target_hint in any::<u8>(), inline_len in 0u16..1024,
        tpn in 0u32..1 << 24, sge_num in any::<u8>(), rmt_eid in any_eid(), token_value in any::<u32>(),
    ) -> Sqe {
        Sqe {
            entry_idx, flags: SqeFlags::from_bits_truncate(flags), token_en, owner, target_hint,
            target_kind: SqeTargetKind::from_code(kind).unwrap(), inline_len, tpn, sge_num, rmt_eid,
            token_value, ..Sqe::new(Opcode::Nop)
        }
    }
}

prop_compose! {
    /// An entry whose fields are set exactly where its opcode has them.
    fn any_sqe()(
        sqe in any_control(), op in 0..Opcode::ALL.len(), target in 0u32..1 << 20,
        va in any::<u64>(), word in any::<u64>(), second in any::<u64>(), id in any::<u32>(),
        value in any::<u32>(),
    ) -> Sqe {
        let opcode = Opcode::ALL[op];
        let with = id >> 12;
        let mut sqe = Sqe { opcode, remote_va: va, seg_token_id: target << 8, target_id: with, ..sqe };
        match opcode {
            Opcode::Send | Opcode::SendImm | Opcode::SendInvalidate => {
                (sqe.remote_va, sqe.seg_token_id, sqe.target_id) = (0, 0, target);
                if opcode == Opcode::SendImm { sqe.imm = word; }
                if opcode == Opcode::SendInvalidate {
                    (sqe.seg_token_id, sqe.seg_token_value) = (id, value);
                }
            }
            Opcode::WriteImm => {
                (sqe.target_id, sqe.seg_token_id, sqe.seg_token_value) = (target, id, value);
                sqe.imm = word;
            }
            Opcode::WriteNotify | Opcode::WriteAtomic => {
                (sqe.notify_token_id, sqe.seg_token_value) = (id, value);
                (sqe.notify_va, sqe.imm) = (second, word);
            }
            op if op.is_atomic() => (sqe.operand, sqe.compare) = (word, second),
            _ => {}
        }
        sqe
    }
}

fn any_command() -> impl Strategy<Value = Command> {
    let words = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u8>(), any::<u16>());
    (0u8..29, words, any::<bool>(), any::<[u32; 8]>(), any_eid()).prop_map(
        |(op, (id, other, a, b, log2, small), yes, more, eid)| match op {
            0 => Command::Nop,
            1 => Command::CreateEq { base: a, depth_log2: log2, vector: small },
            2 => Command::DestroyEq { eqn: id },
            3 => Command::CreateJfc { base: a, depth_log2: log2, eqn: other, inline: yes },
            4 => Command::ModifyJfc { jfcn: id, count: small, period_us: other as u16 },
            5 => Command::DestroyJfc { jfcn: id },
            6 => Command::CreateQueue(queue(id, other, (a, b, log2), yes, more)),
            7 => Command::ModifyState { id, state: QueueState::from_code(log2 % 4).unwrap() },
            8 => Command::ModifyRxThreshold { id, threshold: other },
            9 => Command::QueryQueue { id },
            10 => Command::DestroyQueue { id },
            11 => Command::CreateGroup { id, by_hint: yes, token_value: (!yes).then_some(other) },
            12 => Command::DestroyGroup { id },
            13 => Command::AllocTid,
            14 => Command::FreeTid { token_id: id },
            15 => Command::RegisterSeg(RegisterSeg {
                token_id: id,
                iova: a,
                va: b,
                len: u64::from(more[0]) << 20,
                access: Access::from_bits_truncate(log2),
                token_value: yes.then_some(other),
            }),
            16 => Command::UnregisterSeg { token_id: id },
            17 => Command::Connect { eid, mode: if yes { Mode::Um } else { Mode::Rc } },
            18 => Command::Disconnect { tpn: id },
            19 => Command::Bind {
                id,
                tpn: other,
                remote_id: more[0],
                psns: yes.then_some([log2.into(), other]),
            },
            20 => Command::Unbind { id },
            21 => Command::MapSeg { tpn: id, token_id: other, token_value: more[0], va: a, len: b },
            22 => Command::UnmapSeg { addr: a, len: b },
            23 => Command::PoolGrow { base: a, block_log2: log2, blocks: other },
            24 => Command::PoolShrink { base: a },
            25 => Command::PoolQuery,
            26 => Command::QueryCounters { base: a, room: other },
            27 => Command::QueryModelCounters { base: a, room: other },
            _ => Command::QueryEid { index: id },
        },
    )
}

fn queue(
    id: u32,
    other: u32,
    (a, b, log2): (u64, u64, u8),
    yes: bool,
    more: [u32; 8],
) -> CreateQueue {
    CreateQueue {
        kind: CmdQueueKind::from_code(log2 % 3).unwrap(),
        id,
        mode: [Mode::Rm, Mode::Rc, Mode::Um][usize::from(log2) % 3],
        flags: QueueFlags::from_bits_truncate(more[0] as u16),
        cookie: b,
        record: a ^ b,
        sq: yes.then_some(cmd::SqArgs {
            base: a,
            blocks_log2: log2,
            jfcn: other,
            rnr_retry: log2 ^ 1,
            err_timeout: log2 ^ 2,
            priority: log2 ^ 3,
        }),
        rq: (more[1] & 1 == 1).then_some(cmd::RqArgs {
            base: !a,
            depth_log2: log2 ^ 4,
            max_sge: log2 ^ 5,
            jfcn: more[2],
            min_rnr_timer: log2 ^ 6,
            token_value: more[3],
        }),
        shared_jfr: more[4],
        recv_jfcn: more[5],
        group: more[6],
    }
}

proptest! {
    #[test]
    fn sqe_round_trip(sqe in any_sqe()) {
        let mut w = [0; SQE_WORDS_MAX];
        sqe.encode(&mut w);
        prop_assert_eq!(Sqe::decode(&w), Ok(sqe));
    }

    #[test]
    fn one_sided_requests_are_read_and_written_alike(
        sqe in any_sqe(), tail in any::<[u64; 2]>(), usual in any::<[bool; 3]>(),
    ) {
        let mut sqe = sqe;
        if usual[0] { sqe.opcode = if usual[1] { Opcode::Write } else { Opcode::Read }; }
        if usual[2] { (sqe.sge_num, sqe.inline_len) = (1, 0); sqe.flags.remove(SqeFlags::INLINE); }
        let mut w = [0; SQE_WORDS_MAX];
        sqe.encode(&mut w);
        (w[6], w[7]) = (tail[0], tail[1]);
        let sqe = Sqe::decode(&w).unwrap();
        let block: [u64; 8] = w[..8].try_into().unwrap();
        let fits = matches!(sqe.opcode, Opcode::Write | Opcode::Read)
            && sqe.sge_num == 1 && !sqe.flags.contains(SqeFlags::INLINE);
        let found = OneSided::decode(&block);
        prop_assert_eq!(found.is_some(), fits);
        let Some(found) = found else { return Ok(()) };
        let token = sqe.token_en.then_some(sqe.token_value);
        prop_assert_eq!(found, OneSided {
            entry_idx: sqe.entry_idx, owner: sqe.owner, flags: sqe.flags,
            is_write: sqe.opcode == Opcode::Write, tpn: sqe.tpn, token,
            seg_token_id: sqe.seg_token_id, remote_va: sqe.remote_va, piece: Sge::from_words(tail),
        });
        let Sqe { target_kind, target_id, target_hint, rmt_eid, .. } = sqe;
        if sqe.inline_len == 0 && (sqe.token_en || sqe.token_value == 0) {
            let to = Addressed { target_kind, target_id, target_hint, rmt_eid };
            prop_assert_eq!(found.encode(&to), block);
            let (mut moved, [va, remote_va]) = (MovableBlock::new(block), tail);
            let is_signalled = !sqe.flags.contains(SqeFlags::COMPLETE);
            let place = (!sqe.entry_idx, !sqe.owner, is_signalled);
            moved.move_to(place, (remote_va, va, sqe.tpn));
            let piece = Sge { va, len: sqe.tpn, ..found.piece };
            let ((entry_idx, owner, _), mut flags) = (place, found.flags);
            flags.toggle(SqeFlags::COMPLETE);
            let other = OneSided { entry_idx, owner, flags, remote_va, piece, ..found };
            prop_assert_eq!(*moved.block(), other.encode(&to));
        }
        // The kind that does not exist.
        let mut other = block;
        other[0] |= 3 << 29;
        prop_assert_eq!(OneSided::decode(&other), None);
    }

    #[test]
    fn tails_of_one_sided_requests_are_read_alike(
        sqe in any_sqe(), usual in any::<[bool; 3]>(), counts in (0..16_u8, 0..256_u16),
    ) {
        let mut sqe = sqe;
        if usual[0] { sqe.opcode = if usual[1] { Opcode::Write } else { Opcode::Read }; }
        if usual[2] { (sqe.sge_num, sqe.inline_len) = counts; }
        let mut w = [0; SQE_WORDS_MAX];
        sqe.encode(&mut w);
        let mut front: [u64; 8] = w[..8].try_into().unwrap();
        let is_inline = sqe.flags.contains(SqeFlags::INLINE);
        let (pieces, len) = (usize::from(sqe.sge_num), usize::from(sqe.inline_len));
        let fits = match sqe.opcode {
            Opcode::Write if is_inline => len <= 208,
            Opcode::Write | Opcode::Read => pieces <= 13 && !is_inline,
            _ => false,
        };
        let found = Tailed::decode(&front);
        prop_assert_eq!(found.is_some(), fits);
        let Some(found) = found else { return Ok(()) };
        prop_assert_eq!(found.tail.blocks() as usize, sqe.blocks());
        prop_assert_eq!(Tailed::TAIL * 8, crate::sqe::control_len(sqe.opcode));
        prop_assert_eq!(found.tail, if is_inline { Tail::Inline(len) } else { Tail::Pieces(pieces) });
        // The rest is that of a request with one piece.
        front[0] &= !(1 << 22);
        front[1] = front[1] & !(0xff << 24) | 1 << 24;
        (front[6], front[7]) = (0, 0);
        let flags = sqe.flags;
        prop_assert_eq!(Some(found.request), OneSided::decode(&front).map(|o| OneSided { flags, ..o }));
        front[0] |= 3 << 29;
        prop_assert_eq!(Tailed::decode(&front), None);
    }

    #[test]
    fn atomics_are_read_and_written_alike(
        sqe in any_sqe(), tail in any::<[u64; 2]>(), kind in 0..7_usize, usual in any::<[bool; 2]>(),
    ) {
        let mut sqe = sqe;
        let atomics = Opcode::ALL.into_iter().filter(|opcode| opcode.is_atomic());
        if usual[0] { sqe.opcode = atomics.clone().nth(kind).unwrap(); }
        if usual[1] { (sqe.sge_num, sqe.inline_len) = (1, 0); sqe.flags.remove(SqeFlags::INLINE); }
        let mut w = [0; SQE_WORDS_MAX];
        sqe.encode(&mut w);
        (w[12], w[13]) = (tail[0], tail[1]);
        let sqe = Sqe::decode(&w).unwrap();
        let [front, back] = [0, 8].map(|at| <[u64; 8]>::try_from(&w[at..at + 8]).unwrap());
        let fits = sqe.opcode.is_atomic()
            && sqe.sge_num == 1 && !sqe.flags.contains(SqeFlags::INLINE);
        prop_assert_eq!(Atomic::decode(&front, || None), None);
        let found = Atomic::decode(&front, || Some(back));
        prop_assert_eq!(found.is_some(), fits);
        let Some(found) = found else { return Ok(()) };
        let token = sqe.token_en.then_some(sqe.token_value);
        prop_assert_eq!(found.kind.opcode(), sqe.opcode);
        prop_assert_eq!((found.operand, found.compare), (sqe.operand, sqe.compare));
        prop_assert_eq!(found.request, OneSided {
            entry_idx: sqe.entry_idx, owner: sqe.owner, flags: sqe.flags,
            is_write: false, tpn: sqe.tpn, token,
            seg_token_id: sqe.seg_token_id, remote_va: sqe.remote_va, piece: Sge::from_words(tail),
        });
        let Sqe { target_kind, target_id, target_hint, rmt_eid, .. } = sqe;
        if sqe.inline_len == 0 && (sqe.token_en || sqe.token_value == 0) {
            let to = Addressed { target_kind, target_id, target_hint, rmt_eid };
            prop_assert_eq!(found.encode(&to), [front, back]);
        }
        // The kind that does not exist.
        let mut other = front;
        other[0] |= 3 << 29;
        prop_assert_eq!(Atomic::decode(&other, || Some(back)), None);
    }

    #[test]
    fn control_part_leaves_the_tail_alone(sqe in any_sqe(), fill in any::<u64>()) {
        let mut w = [fill; SQE_WORDS_MAX];
        sqe.encode(&mut w);
        let control = crate::sqe::control_len(sqe.opcode) / 8;
        prop_assert!(w[control..].iter().all(|w| *w == fill));
    }

    #[test]
    fn any_words_decode_or_name_the_reason(w in any::<[u64; SQE_WORDS_MAX]>()) {
        match Sqe::decode(&w) {
            Ok(sqe) => prop_assert_eq!(sqe.opcode as u8, (w[0] >> 40) as u8),
            Err(SqeError::Opcode(code)) => prop_assert_eq!(Opcode::from_code(code), None),
            Err(SqeError::TargetKind(kind)) => prop_assert_eq!(kind, 3),
        }
    }

    #[test]
    fn cqe_round_trip(
        bits in any::<[bool; 3]>(), opcode in 0u8..8, status in 0..CqeStatus::ALL.len(),
        entry_idx in any::<u16>(), local_id in 0u32..1 << 20, remote_id in 0u32..1 << 20,
        tpn in 0u32..1 << 24, byte_cnt in any::<u32>(), words in any::<[u64; 2]>(),
        rmt_eid in any_eid(), inline in any::<[u8; 12]>(), owner in any::<bool>(),
    ) {
        let cqe = Cqe {
            recv: bits[0], is_jetty: bits[1], inline_en: bits[2], opcode,
            status: CqeStatus::ALL[status], entry_idx, local_id, remote_id, tpn, byte_cnt,
            user_data: words[0], rmt_eid, imm: words[1], inline,
        };
        let w = cqe.encode(owner);
        prop_assert_eq!(Cqe::decode(&w), cqe);
        prop_assert_eq!(crate::cqe::owner_of(w[0]), owner);
        let plain = !cqe.recv && !cqe.inline_en && cqe.status == CqeStatus::Success;
        prop_assert_eq!(SendDone::is_it(w[0]), plain);
        let half = SendDone::decode(&[w[0], w[1], w[2], w[3]]);
        let form = SendDoneForm::of(&half, owner);
        prop_assert_eq!(form.encode(half.entry_idx, half.byte_cnt, owner), half.encode(owner, owner));
        prop_assert_eq!(form.encode(half.entry_idx, half.byte_cnt, !owner), half.encode(owner, !owner));
        prop_assert_eq!((half.entry_idx, half.local_id, half.tpn), (entry_idx, local_id, tpn));
        prop_assert_eq!((half.byte_cnt, half.user_data), (byte_cnt, words[0]));
        let alone = Cqe {
            is_jetty: bits[1], entry_idx, local_id, tpn, byte_cnt, user_data: words[0], ..Cqe::default()
        };
        prop_assert_eq!(half.encode(bits[1], owner), alone.encode(owner));
    }

    #[test]
    fn any_words_decode_as_cqe_and_eqe(w in any::<[u64; 8]>()) {
        let cqe = Cqe::decode(&w);
        prop_assert!(cqe.local_id < 1 << 20 && cqe.remote_id < 1 << 20 && cqe.tpn < 1 << 24);
        let _ = Eqe::decode([w[0], w[1]]);
        let _ = cmd::Response::decode(&w);
    }

    #[test]
    fn rqe_round_trip(sges in prop::collection::vec((1u32.., any::<u32>(), any::<u64>()), 0..=16)) {
        let sges: Vec<_> = sges.into_iter().map(|(len, token_id, va)| Sge { len, token_id, va }).collect();
        let rqe = Rqe::new(&sges);
        prop_assert_eq!(&rqe.sges[..rqe.num], &sges[..]);
        let stride = crate::rqe::stride(sges.len()) / 8;
        prop_assert_eq!(Rqe::decode(&rqe.encode()[..stride]), rqe);
    }

    #[test]
    fn eqe_round_trip(owner in any::<bool>(), is_async in any::<bool>(), code in any::<u8>(), n in any::<u32>()) {
        let eqe = if is_async { Eqe::Async { code, object: n } } else { Eqe::Completion { jfcn: n } };
        let w = eqe.encode(owner);
        prop_assert_eq!(Eqe::decode(w), eqe);
        prop_assert_eq!(eqe::owner_of(w[0]), owner);
    }

    #[test]
    fn doorbell_round_trip(ci in 0u32..1 << 24, arm in 0u8..3, arm_sn in 0u8..4, jfcn in 0u32..1 << 20) {
        let arm = [None, Some(CqArm::Any), Some(CqArm::Solicited)][usize::from(arm)];
        let db = JfcDoorbell { ci, arm, arm_sn, jfcn };
        prop_assert_eq!(JfcDoorbell::decode(db.encode()), db);
    }

    #[test]
    fn command_round_trip(command in any_command(), sequence in any::<u32>()) {
        let w = command.encode(sequence);
        prop_assert_eq!(w[0] as u8, command.opcode());
        prop_assert_eq!(Command::decode(&w), Ok((command, sequence)));
    }

    #[test]
    fn any_words_decode_as_command_or_keep_the_sequence(w in any::<[u64; cmd::CMD_WORDS]>()) {
        let sequence = (w[0] >> 32) as u32;
        match Command::decode(&w) {
            Ok((_, s)) | Err(s) => prop_assert_eq!(s, sequence),
        }
    }

    #[test]
    fn response_round_trip(sequence in any::<u32>(), code in 0u8..=10, results in any::<[u64; 7]>(), owner in any::<bool>()) {
        let r = cmd::Response { sequence, status: CmdStatus::from_code(code), results };
        let w = r.encode(owner);
        prop_assert_eq!(cmd::Response::decode(&w), r);
        prop_assert_eq!(cmd::response_owner(w[0]), owner);
    }

    #[test]
    fn eid_words_round_trip(eid in any_eid()) {
        prop_assert_eq!(RawEid::from_words(eid.to_words()), eid);
    }

    #[test]
    fn caps_round_trip(words in any::<[u64; crate::caps::Caps::COUNT]>()) {
        prop_assert_eq!(crate::caps::Caps::from_words(&words).to_words(), words);
    }
}

#[test]
fn an_eid_is_shown_as_an_address() {
    assert_eq!(format!("{EID:?}"), "1:203:405:607:809:a0b:c0d:e0f");
}

/// A window of so many bytes, with nothing but what every window has.
#[derive(Debug)]
struct Window(u64);

impl RegisterRegion for Window {
    fn len(&self) -> u64 {
        self.0
    }
    fn read(&self, _offset: u64) -> u64 {
        u64::MAX
    }
    fn write32(&self, _offset: u64, _value: u32) {}
    fn write64(&self, _offset: u64, _value: u64) {}
    fn write_block(&self, _offset: u64, _words: &[u64; 8]) {}
}

#[test]
fn a_window_is_empty_without_bytes_and_maps_nothing_unless_it_says_so() {
    assert!(Window(0).is_empty() && !Window(1).is_empty());
    assert!(Window(1).map(0, 1).is_none());
}

#[test]
fn a_counter_of_a_model_has_a_name_of_1_to_56_signs() {
    let longest = "n".repeat(56);
    for name in ["a", "context_l1_hits", &longest] {
        let words = ModelCounter::encode(name, 7).unwrap();
        assert_eq!(
            ModelCounter::decode(&words),
            Some(ModelCounter { name: name.into(), value: 7 })
        );
    }
    assert_eq!(ModelCounter::encode("", 7), None);
    assert_eq!(ModelCounter::encode(&"n".repeat(57), 7), None);
    // The device writes what it likes: no name, a control sign, something behind the end, no ASCII.
    for name in [[0, 0], [0x1b_61, 0], [0x61, 0x61], [0x61_0061, 0], [u64::MAX, u64::MAX]] {
        let words = [name[0], name[1], 0, 0, 0, 0, 0, 7];
        assert_eq!(ModelCounter::decode(&words), None, "{name:x?}");
    }
}
