//! Text forms and codecs.

use proptest::prelude::*;
use urma_core::{AsyncKind, CrOpcode, CrStatus, Eid, Status, Token, TokenPolicy, Ubva};

#[test]
fn eid_takes_each_text_form() {
    let mapped = Eid::from_u32(0xc0a8_0164);
    assert_eq!("192.168.1.100".parse(), Ok(mapped));
    assert_eq!("::ffff:192.168.1.100".parse(), Ok(mapped));
    assert_eq!("0000:0000:0000:0000:0000:ffff:c0a8:0164".parse(), Ok(mapped));
    assert_eq!("0xc0a80164".parse(), Ok(mapped));
    assert_eq!(mapped.bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 1, 100]);
    let six: Eid = "2001:db8:85a3::8a2e:370:7334".parse().unwrap();
    assert_eq!(six.bytes()[..4], [0x20, 0x01, 0x0d, 0xb8]);
    assert!(!six.is_ipv4_mapped() && mapped.is_ipv4_mapped());
}

#[test]
fn eid_prints_and_groups() {
    let eid = Eid::from_u32(0xc0a8_0164);
    assert_eq!(eid.to_string(), "192.168.1.100");
    assert_eq!(eid.groups().to_string(), "0000:0000:0000:0000:0000:ffff:c0a8:0164");
    assert_eq!("2001:db8::1".parse::<Eid>().unwrap().to_string(), "2001:db8::1");
}

#[test]
fn eid_refuses_other_text() {
    for text in ["", "1.2.3", "1.2.3.256", ":::", "0x", "0x+1", "0x100000000", "host", "1.2.3.4 "] {
        assert!(text.parse::<Eid>().is_err(), "{text:?}");
    }
}

#[test]
fn loopback_is_known() {
    assert!(Eid::loopback(0x0001_0203).is_loopback());
    assert_eq!(Eid::loopback(0xff01_0203).to_string(), "127.1.2.3");
    assert!("::1".parse::<Eid>().unwrap().is_loopback());
    assert!(!Eid::from_u32(0x0a00_0001).is_loopback());
    assert!(Eid::default().is_unspecified() && !Eid::default().is_loopback());
}

#[test]
fn ubva_lies_as_the_packed_c_struct() {
    let ubva = Ubva { eid: Eid::from_u32(0x0102_0304), uasid: 0x0a0b_0c0d, va: 0x1122_3344 };
    let bytes = ubva.to_bytes();
    assert_eq!(bytes[10..16], [0xff, 0xff, 1, 2, 3, 4]);
    assert_eq!(bytes[16..20], [0x0d, 0x0c, 0x0b, 0x0a]);
    assert_eq!(bytes[20..], [0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0]);
    assert_eq!(ubva.to_string(), "1.2.3.4/168496141/0x11223344");
}

proptest! {
    #[test]
    fn eid_survives_its_texts(bytes: [u8; 16]) {
        let eid = Eid::from_bytes(bytes);
        prop_assert_eq!(eid.to_string().parse(), Ok(eid));
        prop_assert_eq!(eid.groups().to_string().parse(), Ok(eid));
        prop_assert_eq!(eid.groups().to_string().len(), 39);
    }

    #[test]
    fn mapped_eid_survives_its_texts(ipv4: u32) {
        let eid = Eid::from_u32(ipv4);
        prop_assert!(eid.is_ipv4_mapped());
        prop_assert_eq!(eid.to_ipv4().map(u32::from), Some(ipv4));
        prop_assert_eq!(eid.to_string().parse(), Ok(eid));
        prop_assert_eq!(format!("{ipv4:#x}").parse(), Ok(eid));
    }

    #[test]
    fn any_text_never_panics(text: String) {
        if let Ok(eid) = text.parse::<Eid>() {
            prop_assert_eq!(eid.to_string().parse(), Ok(eid));
        }
    }

    #[test]
    fn ubva_survives_its_bytes(eid: [u8; 16], uasid: u32, va: u64) {
        let ubva = Ubva { eid: Eid::from_bytes(eid), uasid, va };
        prop_assert_eq!(Ubva::from_bytes(&ubva.to_bytes()), ubva);
    }

    #[test]
    fn bytes_survive_ubva(bytes in proptest::collection::vec(any::<u8>(), Ubva::LEN)) {
        let bytes: [u8; Ubva::LEN] = bytes.try_into().unwrap();
        prop_assert_eq!(Ubva::from_bytes(&bytes).to_bytes(), bytes);
    }

    #[test]
    fn numbers_of_a_device_survive(code: u8) {
        prop_assert_eq!(CrStatus::from_code(code).code(), code);
        prop_assert_eq!(CrOpcode::from_code(code).code(), code);
        prop_assert_eq!(AsyncKind::from_code(code).code(), code);
    }
}

#[test]
fn completion_statuses_have_the_numbers_of_the_header() {
    for (code, status) in CrStatus::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(status.code()), code);
        assert_eq!(CrStatus::from_code(status.code()), status);
    }
    assert_eq!(CrStatus::RemUnsupportedReq.code(), 6);
    assert_eq!(CrStatus::RnrRetryExceeded.code(), 10);
    assert_eq!(CrStatus::RemDataPoison.code(), 16);
    assert_eq!(CrStatus::from_code(17), CrStatus::Unknown(17));
    assert!(CrStatus::Success.is_success() && !CrStatus::WrFlush.is_success());
}

#[test]
fn statuses_have_the_errno_of_the_header() {
    let pairs = [
        (Status::NoPermission, 1),
        (Status::Again, 11),
        (Status::NoMemory, 12),
        (Status::Exists, 17),
        (Status::Invalid, 22),
        (Status::TimedOut, 110),
        (Status::InProgress, 115),
        (Status::Quota, 122),
        (Status::Fail, 0x1000),
    ];
    for (status, errno) in pairs {
        assert_eq!(status.errno(), errno);
    }
}

#[test]
fn a_token_is_never_printed() {
    let policy = TokenPolicy::PlainText(Token::new(0xdead_beef));
    let text = format!("{policy:?} {:?}", Token::new(3_735_928_559));
    assert!(!text.contains("3735928559") && !text.to_lowercase().contains("dead"), "{text}");
}
