//! Verbs that need the kernel modules.
//!
//! *Gives*: why each is not supported on a software device. *Must not*: pretend.

use crate::cli::Verb;

/// Why a verb is refused; `None`: it is not.
pub(crate) fn why(verb: &Verb) -> Option<&'static str> {
    Some(match verb {
        Verb::Show(_)
        | Verb::ShowRes(_)
        | Verb::ListRes(_)
        | Verb::ShowStats(_)
        | Verb::Monitor(_)
        | Verb::Abi(_)
        | Verb::Run(_)
        | Verb::Capture(_) => return None,
        Verb::Eid(words) if words.words.is_empty() || words.words[0] == "list" => return None,
        Verb::Eid(_) | Verb::AddEid(_) | Verb::DelEid(_) => {
            "a node has the one EID that its process claims; set URMA_EID before it starts"
        }
        Verb::SetEidMode(_) => "EIDs are claimed by processes; there is no mode",
        Verb::Agg(_) => "a node is one device; there is nothing to aggregate",
        Verb::Dev(_) | Verb::SetNsMode(_) | Verb::SetDevNs(_) => {
            "a node lives in the network namespace of its process, and its device is seen by that \
             process alone"
        }
        Verb::MainUeEid(_) => "there are no user entities; a process is its own",
        Verb::Perf(_) => {
            "performance records belong to the process that runs; its counters: urma_admin monitor"
        }
        Verb::System(_) => "devices and EIDs are not shared between processes; each opens its own",
    })
}
