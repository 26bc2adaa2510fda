//! The unit of systemd.

use std::process::Command;

/// Highest exposure, in tenths, as `systemd-analyze security` rates it.
const EXPOSURE_MAX: &str = "20";

#[test]
fn systemd_takes_the_unit_and_rates_it_as_hardened() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/ubcored.service");
    let text = std::fs::read_to_string(source).unwrap();
    let program = "ExecStart=/usr/bin/ubcored ";
    assert!(text.contains(program));
    let folder = std::env::temp_dir().join(format!("ubcored-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let unit = folder.join("ubcored.service");
    let built = format!("ExecStart={} ", env!("CARGO_BIN_EXE_ubcored"));
    std::fs::write(&unit, text.replace(program, &built)).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
    let Ok(verified) = verified else {
        return urma_skip::skip("systemd-analyze is missing: install systemd");
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    // It looks at the units of the machine, too.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("ubcored")).collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
    let rated = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold", EXPOSURE_MAX])
        .arg(&unit)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&rated.stdout);
    assert!(rated.status.success(), "{said}{}", String::from_utf8_lossy(&rated.stderr));
    std::fs::remove_dir_all(folder).unwrap();
}
