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
