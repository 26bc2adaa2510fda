//! Commands of `ip`, run in a namespace.
//!
//! *Gives*: whether a failure is a refusal of the kernel or a wrong command.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::namespace::{Namespace, Refused};

/// Runs the commands in `namespace`, in order, until one fails.
///
/// # Errors
/// There is no `ip`, or the kernel has no such interfaces or refuses them.
///
/// # Panics
/// When a command fails for another reason: it is wrong.
pub(crate) fn ip(namespace: &Namespace, commands: &[String]) -> Result<(), Refused> {
    let input = commands.join("\n");
    let output = namespace.run(|| {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        // Closed behind the last command, so that `ip` ends.
        child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()))?;
        child.wait_with_output()
    });
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(REFUSALS.iter().any(|refusal| said.contains(refusal)), "ip: {said}: {input}");
            Err(Refused(format!("ip: {}", said.trim())))
        }
        Err(error) => Err(Refused(format!("ip (apt-get install iproute2): {error}"))),
    }
}

/// What `ip` prints where the kernel refuses.
const REFUSALS: [&str; 3] = ["Unknown device type", "not supported", "not permitted"];
