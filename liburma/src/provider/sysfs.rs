//! Files of a device as the kernel's `ubcore` class lists them, and its attributes as they say them.
//!
//! *Owns*: where the class folder is, how one value is read, which file is which attribute. *Takes*: `URMA_SYSFS_PATH`; the
//! device's folder. *Gives*: texts and numbers; `urma_device_attr_t`, 0 where a file is not there. *Must not*: hold a file
//! open; judge the numbers.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::{abi::*, convert::zeroed, setting::setting};

/// In place of the folders of the kernel.
const CLASS_VARIABLE: &str = "URMA_SYSFS_PATH";
/// The folder of the kernel's module, and that of older ones.
const CLASSES: [&str; 2] = ["/sys/class/ubcore", "/sys/class/uburma"];
/// Bytes of a value, with the zero byte behind it.
const VALUE_LEN: usize = 64;

/// The folders of devices, in order of name.
pub(super) fn devices() -> Vec<PathBuf> {
    let class = setting(CLASS_VARIABLE)
        .map(PathBuf::from)
        .or_else(|| CLASSES.iter().map(PathBuf::from).find(|class| class.is_dir()));
    let Some(class) = class else { return Vec::new() };
    let list = match std::fs::read_dir(&class) {
        Ok(list) => list,
        Err(error) => {
            tracing::warn!(target: "urma", path = %class.display(), %error, "no device folder");
            return Vec::new();
        }
    };
    let mut folders: Vec<_> = list
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .filter(|entry| entry.file_name() != "ubcore")
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// Reads a file of one value into `to`, without the newline at its end and with a zero byte behind
/// it. Bytes of the value; `None` when it cannot be read, is empty or has no room.
pub(crate) fn read(path: &Path, to: &mut [u8]) -> Option<usize> {
    let len = File::open(path).and_then(|mut file| file.read(to)).ok()?;
    let len = match to.get(..len)? {
        [] => return None,
        [.., b'\n'] => len - 1,
        _ => len,
    };
    *to.get_mut(len)? = 0;
    Some(len)
}

/// The text of a file; `None` also for an empty one.
pub(super) fn text(folder: &Path, file: &str) -> Option<String> {
    let mut value = [0; VALUE_LEN];
    let len = read(&folder.join(file), &mut value)?;
    let text = core::str::from_utf8(value.get(..len)?).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The number in a file, decimal or hexadecimal with `0x`; 0 when there is none or it is too large.
pub(super) fn number<T: TryFrom<u64> + Default>(folder: &Path, file: &str) -> T {
    let parsed = text(folder, file).and_then(|text| parse(&text));
    parsed.and_then(|number| T::try_from(number).ok()).unwrap_or_default()
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The attributes that the files in `folder` state; 0 for what they leave out.
pub(super) fn read_attr(folder: &Path) -> urma_device_attr_t {
    let mut attr: urma_device_attr_t = zeroed();
    caps(&mut attr.dev_cap, folder);
    attr.port_cnt = number(folder, "port_count");
    let ports = usize::from(attr.port_cnt).min(MAX_PORT_CNT as usize);
    for (index, port) in attr.port_attr.iter_mut().take(ports).enumerate() {
        *port = port_of(&folder.join(format!("port{index}")));
    }
    let reserved = text(folder, "reserved_jetty_id").unwrap_or_default();
    if let Some((min, max)) = reserved.split_once('-') {
        attr.reserved_jetty_id_min = min.trim().parse().unwrap_or_default();
        attr.reserved_jetty_id_max = max.trim().parse().unwrap_or_default();
    }
    attr
}

/// Members from the files of their names.
macro_rules! numbers {
    ($to:ident from $folder:ident: $($name:ident)*) => {
        $($to.$name = number($folder, stringify!($name));)*
    };
}

fn caps(cap: &mut urma_device_cap_t, folder: &Path) {
    numbers! { cap from folder:
        max_jfc max_jfs max_jfr max_jetty max_jetty_grp max_jetty_in_jetty_grp ceq_cnt max_tp_in_tpg
        max_eid_cnt max_oor_cnt mn max_netaddr_cnt max_jfc_depth max_jfs_depth max_jfr_depth
        max_jfs_sge max_jfs_rsge max_jfr_sge max_msg_size max_read_size max_write_size max_cas_size
        max_swap_size max_fetch_and_add_size max_fetch_and_sub_size max_fetch_and_and_size
        max_fetch_and_or_size max_fetch_and_xor_size page_size_cap trans_mode congestion_ctrl_alg
    }
    cap.max_jfs_inline_len = number(folder, "max_jfs_inline_size");
    cap.feature.value = number(folder, "feature");
    cap.atomic_feat.value = number(folder, "atomic_feat");
}

fn port_of(folder: &Path) -> urma_port_attr_t {
    urma_port_attr_t {
        max_mtu: number(folder, "max_mtu"),
        state: number(folder, "state"),
        active_width: number(folder, "active_width"),
        active_speed: number(folder, "active_speed"),
        active_mtu: number(folder, "active_mtu"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_forms() {
        assert_eq!(parse("0xcc08"), Some(0xcc08));
        assert_eq!(parse("4096"), Some(4096));
        assert_eq!(parse("many"), None);
        assert_eq!(parse("-1"), None);
    }

    #[test]
    fn a_value_ends_with_zero_and_must_have_room() {
        let path = std::env::temp_dir().join(format!("urma-sysfs-{}", std::process::id()));
        std::fs::write(&path, "abc\n").expect("a file");
        let mut to = [0xff; 4];
        assert_eq!(read(&path, &mut to), Some(3));
        assert_eq!(&to, b"abc\0");
        std::fs::write(&path, "abcd").expect("a file");
        assert_eq!(read(&path, &mut to), None);
        std::fs::write(&path, "").expect("a file");
        assert_eq!(read(&path, &mut to), None);
        std::fs::remove_file(&path).expect("it was there");
        assert_eq!(read(&path, &mut to), None);
    }
}
