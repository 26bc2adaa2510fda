//! Verbs that need the kernel modules.
//!
//! *Gives*: why each is not supported on a software device. *Must not*: pretend.

use crate::cli::AdminVerb;

/// Why a verb is refused; `None`: it is not.
pub(crate) fn why(verb: &AdminVerb) -> Option<&'static str> {
    Some(match verb {
        AdminVerb::Show(_)
        | AdminVerb::ShowRes(_)
        | AdminVerb::ListRes(_)
        | AdminVerb::ShowStats(_)
        | AdminVerb::Monitor(_)
        | AdminVerb::Abi(_)
        | AdminVerb::Config
        | AdminVerb::Daemon(_)
        | AdminVerb::Run(_)
        | AdminVerb::Bind(_)
        | AdminVerb::Unbind(_)
        | AdminVerb::Capture(_) => return None,
        AdminVerb::Eid(words) if words.words.is_empty() || words.words[0] == "list" => return None,
        AdminVerb::Eid(_) | AdminVerb::AddEid(_) | AdminVerb::DelEid(_) => {
            "a node has the one EID that its process claims; set URMA_EID before it starts"
        }
        AdminVerb::SetEidMode(_) => "EIDs are claimed by processes; there is no mode",
        AdminVerb::Agg(_) => "a node is one device; there is nothing to aggregate",
        AdminVerb::Dev(_) | AdminVerb::SetNsMode(_) | AdminVerb::SetDevNs(_) => {
            "a node lives in the network namespace of its process, and its device is seen by that \
             process alone"
        }
        AdminVerb::MainUeEid(_) => "there are no user entities; a process is its own",
        AdminVerb::Perf(_) => {
            "performance records belong to the process that runs; its counters: urma_admin monitor"
        }
        AdminVerb::System(_) => {
            "devices and EIDs are not shared between processes; each opens its own"
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::AdminCli;

    /// What is done, and why what is not done is refused: what each word says is for its own reason.
    #[test]
    fn each_verb_is_done_or_refused_for_its_own_reason() {
        for (line, reason) in [
            ("show", None),
            ("show_res dev x jfc", None),
            ("list_res", None),
            ("show_stats", None),
            ("monitor", None),
            ("abi x", None),
            ("config", None),
            ("daemon", None),
            ("run -- x", None),
            ("bind 0000:00:03.0", None),
            ("unbind 0000:00:03.0", None),
            ("capture -w x", None),
            ("eid", None),
            ("eid list", None),
            ("eid list --json", None),
            ("eid add 1", Some("one EID that its process claims")),
            ("eid del list", Some("one EID that its process claims")),
            ("add_eid 1", Some("one EID that its process claims")),
            ("del_eid 1", Some("one EID that its process claims")),
            ("set_eid_mode x", Some("there is no mode")),
            ("agg add", Some("nothing to aggregate")),
            ("dev set", Some("in the network namespace of its process")),
            ("set_ns_mode -m 1", Some("in the network namespace of its process")),
            ("set_dev_ns x", Some("in the network namespace of its process")),
            ("main_ue_eid flush", Some("no user entities")),
            ("perf start", Some("urma_admin monitor")),
            ("system show", Some("each opens its own")),
        ] {
            let words = std::iter::once("urma_admin").chain(line.split(' '));
            let cli = AdminCli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
            match (why(&cli.verb), reason) {
                (None, None) => {}
                (Some(why), Some(reason)) => assert!(why.contains(reason), "{line}: {why}"),
                (why, _) => panic!("{line}: {why:?}"),
            }
        }
    }
}
