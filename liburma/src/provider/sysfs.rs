//! Files of a device as the kernel's `ubcore` class lists them.
//!
//! *Owns*: where the class folder is, and how one value is read. *Takes*: `URMA_SYSFS_PATH`.
//! *Gives*: texts and numbers. *Must not*: hold a file open.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::setting::setting;

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
