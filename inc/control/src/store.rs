//! Where a controller keeps what it has to know after a restart.
//!
//! What a controller stores, as bytes, and back.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use inc::{
    control::CommunicatorId,
    controller::{
        CommunicatorState, ControllerRemains, GROUP_NAME_MAX, GroupId, GroupPhase, GroupState,
        MemberState, PlacedChild, PlacedSwitch, SwitchHome, TreePhase,
    },
    document::{read_map, write_map},
    slots::Child,
    topology::PhysicalMap,
    wire::{Rank, TreeEpoch},
};
use prost::Message;

use crate::{
    convert::{ConversionError, address_of, child_of, ends_of, u16_of},
    proto::{self, stored_communicator::Phase},
};

/// A place for the last state of a controller.
pub trait ControllerStore: Send {
    /// Keeps this state instead of the last one. When it returns, the state survives the controller.
    ///
    /// # Errors
    /// The state is not kept; what it was made for must not be carried out.
    fn save(&mut self, state: &[u8]) -> io::Result<()>;

    /// The state that was kept last; `None`: there is none.
    ///
    /// # Errors
    /// The store cannot be read.
    fn load(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Why another controller is in charge of this state now; `None`: this one is.
    fn lost(&self) -> Option<String> {
        None
    }
}

/// Keeps nothing: a controller that ends is forgotten.
#[derive(Debug, Default)]
pub struct MemoryStore;

impl ControllerStore for MemoryStore {
    fn save(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

/// Keeps the state in a file, which is replaced as a whole: after a crash it has the state before or the one after.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
}

impl FileStore {
    /// The file need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn folder(&self) -> &Path {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or_else(|| Path::new("."))
    }
}

impl ControllerStore for FileStore {
    fn save(&mut self, state: &[u8]) -> io::Result<()> {
        let next = self.path.with_added_extension("next");
        let mut file = private(&next)?;
        file.write_all(state)?;
        file.sync_all()?;
        fs::rename(&next, &self.path)?;
        // The new name survives, too.
        File::open(self.folder())?.sync_all()
    }

    fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(state) => Ok(Some(state)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// An empty file that other users cannot read: it has the keys of tickets.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// A stored state that cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No message of the format.
    #[error("the stored state cannot be read: {0}")]
    Format(#[from] prost::DecodeError),
    /// A field that has no value that it may have.
    #[error("the stored state cannot be read: {0}")]
    Field(#[from] ConversionError),
    /// The name of a group.
    #[error(
        "the stored state cannot be read: the name of group {id} has {len} bytes, a name has {GROUP_NAME_MAX} at most"
    )]
    GroupName {
        /// Number of the group.
        id: u64,
        /// Bytes of its name.
        len: usize,
    },
    /// The topology in it.
    #[error("the stored topology cannot be read: {0}")]
    Map(#[from] inc::document::DocumentError),
}

/// Bytes of a state, with the topology that was put while the controller ran.
#[must_use]
pub fn write_image(remains: &ControllerRemains, map: Option<&PhysicalMap>) -> Vec<u8> {
    let groups = remains.groups.iter().map(|group| proto::StoredGroup {
        id: group.id.0,
        name: group.name.clone(),
        world_size: u32::from(group.world_size),
        tenant: group.tenant,
        is_over: matches!(group.phase, GroupPhase::Over(_)),
        why: match &group.phase {
            GroupPhase::Over(why) => why.clone(),
            GroupPhase::Creating(_) | GroupPhase::Ready => String::new(),
        },
        members: group.members.iter().map(|(rank, member)| stored_member(*rank, member)).collect(),
    });
    let image = proto::Image {
        group_next: remains.next_numbers.0,
        communicator_next: remains.next_numbers.1,
        groups: groups.collect(),
        communicators: remains.communicators.iter().map(stored).collect(),
        map: map.and_then(|map| write_map(map).ok()).unwrap_or_default(),
    };
    image.encode_to_vec()
}

/// A state, and the topology that was put.
///
/// # Errors
/// [`ImageError`].
pub fn read_image(bytes: &[u8]) -> Result<(ControllerRemains, Option<PhysicalMap>), ImageError> {
    let image = proto::Image::decode(bytes)?;
    let map = (!image.map.is_empty()).then(|| read_map(&image.map)).transpose()?;
    let groups = image.groups.into_iter().map(group_of).collect::<Result<_, _>>()?;
    let communicators = image.communicators.into_iter().map(communicator_of);
    let remains = ControllerRemains {
        next_numbers: (image.group_next, image.communicator_next),
        groups,
        communicators: communicators.collect::<Result<_, _>>()?,
    };
    Ok((remains, map))
}

fn stored_member(rank: Rank, member: &MemberState) -> proto::StoredMember {
    proto::StoredMember {
        rank: u32::from(rank.0),
        address: member.address.to_string(),
        key: member.key,
        created: member.created,
        has_left: member.has_left,
    }
}

fn group_of(of: proto::StoredGroup) -> Result<GroupState, ImageError> {
    if of.name.len() > GROUP_NAME_MAX {
        return Err(ImageError::GroupName { id: of.id, len: of.name.len() });
    }
    let member = |of: proto::StoredMember| {
        let state = MemberState {
            address: of.address.parse().map_err(|_| ConversionError("address"))?,
            key: of.key,
            call: None,
            session: None,
            absent_until: 0,
            created: of.created,
            has_left: of.has_left,
        };
        Ok((Rank(u16_of(of.rank, "rank")?), state))
    };
    Ok(GroupState {
        id: GroupId(of.id),
        name: of.name,
        world_size: u16_of(of.world_size, "world_size")?,
        tenant: of.tenant,
        members: of.members.into_iter().map(member).collect::<Result<_, ConversionError>>()?,
        phase: if of.is_over { GroupPhase::Over(of.why) } else { GroupPhase::Ready },
    })
}

fn stored(of: &CommunicatorState) -> proto::StoredCommunicator {
    let (phase, why) = match &of.phase {
        TreePhase::Ready => (Phase::Ready, String::new()),
        TreePhase::Over(why) => (Phase::Over, why.clone()),
        // The calls end with the controller.
        TreePhase::Gathering(_) => (Phase::Over, "the controller was started again".to_owned()),
        TreePhase::Installing(_) | TreePhase::Draining { .. } | TreePhase::Aborting { .. } => {
            (Phase::Changing, String::new())
        }
    };
    let tree = of.tree.iter().flatten().map(|switch| proto::StoredSwitch {
        name: match &switch.home {
            SwitchHome::Node(name) => name.clone(),
            SwitchHome::Member(_) => String::new(),
        },
        member: match switch.home {
            SwitchHome::Node(_) => None,
            SwitchHome::Member(rank) => Some(u32::from(rank.0)),
        },
        parent: switch.parent.and_then(|(above, _)| u32::try_from(above).ok()),
        parent_address: switch.parent.map_or_else(String::new, |(_, at)| at.to_string()),
        children: switch.children.iter().map(stored_child).collect(),
        ends: switch.ends.clone().map(Into::into),
        memory: switch.memory,
    });
    let ends = of.ends.iter().map(|(rank, end)| (u32::from(rank.0), (*end).into()));
    proto::StoredCommunicator {
        id: of.id.0,
        group: of.group.0,
        ordinal: of.ordinal,
        epoch: u32::from(of.epoch.0),
        phase: phase.into(),
        why,
        attributes: Some(of.attributes.into()),
        ends: ends.collect(),
        has_tree: of.tree.is_some(),
        tree: tree.collect(),
        without: of.without.clone().unwrap_or_default(),
        destroyed: of.destroyed.keys().map(|rank| u32::from(rank.0)).collect(),
    }
}

fn stored_child(child: &PlacedChild) -> proto::StoredChild {
    proto::StoredChild {
        child: Some((child.child.clone(), child.address).into()),
        switch: child.switch.and_then(|at| u32::try_from(at).ok()),
        name: child.name.clone(),
    }
}

fn communicator_of(of: proto::StoredCommunicator) -> Result<CommunicatorState, ConversionError> {
    let phase = match Phase::try_from(of.phase).map_err(|_| ConversionError("phase"))? {
        Phase::Unspecified => return Err(ConversionError("phase")),
        Phase::Ready => TreePhase::Ready,
        Phase::Changing => TreePhase::Installing(0),
        Phase::Over => TreePhase::Over(of.why),
    };
    let tree = of.tree.into_iter().map(switch_of).collect::<Result<Vec<_>, _>>()?;
    let places = tree.len();
    let is_place = |at: usize, behind: usize| at < places && at > behind;
    // Each switch stands behind its parent, and each child is a switch of the tree.
    for (at, switch) in tree.iter().enumerate() {
        let is_right = switch.parent.is_none_or(|(above, _)| is_place(at, above))
            && switch.children.iter().all(|child| child.switch.is_none_or(|c| is_place(c, at)));
        if !is_right {
            return Err(ConversionError("tree"));
        }
    }
    let rank = |rank: u32| u16_of(rank, "rank").map(Rank);
    let ends = of.ends.into_iter().map(|(of, end)| Ok((rank(of)?, end.try_into()?)));
    let destroyed = of.destroyed.into_iter().map(|of| Ok((rank(of)?, Vec::new())));
    Ok(CommunicatorState {
        id: CommunicatorId(of.id),
        group: GroupId(of.group),
        ordinal: of.ordinal,
        attributes: of.attributes.ok_or(ConversionError("attributes"))?.try_into()?,
        epoch: TreeEpoch(u16_of(of.epoch, "epoch")?),
        phase,
        ends: ends.collect::<Result<_, ConversionError>>()?,
        tree: of.has_tree.then_some(tree),
        without: (!of.without.is_empty()).then_some(of.without),
        creators: BTreeMap::new(),
        destroyed: destroyed.collect::<Result<_, ConversionError>>()?,
        destroy_at: None,
        cut: BTreeMap::new(),
        refused: std::collections::BTreeSet::new(),
    })
}

fn switch_of(of: proto::StoredSwitch) -> Result<PlacedSwitch, ConversionError> {
    let child = |of: proto::StoredChild| {
        let (child, address) = child_of(of.child.ok_or(ConversionError("child"))?)?;
        let switch = of.switch.map(|at| at as usize);
        if switch.is_some() != matches!(child, Child::Switch(_)) {
            return Err(ConversionError("switch"));
        }
        Ok(PlacedChild { child, switch, name: of.name, address })
    };
    let parent = of.parent.map(|above| Ok((above as usize, address_of(&of.parent_address)?)));
    let home = match of.member {
        None => SwitchHome::Node(of.name),
        Some(rank) => SwitchHome::Member(Rank(u16_of(rank, "member")?)),
    };
    Ok(PlacedSwitch {
        home,
        parent: parent.transpose()?,
        children: of.children.into_iter().map(child).collect::<Result<_, _>>()?,
        ends: of.ends.map(|ends| ends_of(Some(ends))).transpose()?,
        memory: of.memory,
    })
}

#[cfg(test)]
mod tests {

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_has_the_last_state_that_was_saved() {
        let folder = std::env::temp_dir().join(format!("inc-store-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("state");
        let mut store = FileStore::new(&path);
        assert_eq!(store.load().unwrap(), None);
        for state in [&b"first, which is longer"[..], b"second"] {
            store.save(state).unwrap();
            assert_eq!(FileStore::new(&path).load().unwrap().as_deref(), Some(state));
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // What cannot be saved is an error, and the state before stays.
        let mut nowhere = FileStore::new(folder.join("nowhere/state"));
        assert!(nowhere.save(b"x").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A file or etcd is written when the bytes are others.
    #[test]
    fn a_state_is_written_as_the_same_bytes_each_time() {
        let end = |rank: u32| {
            let address = format!("10.0.0.{rank}:4791");
            let end =
                proto::EdgeEnd { address, qpn: 0x40 + rank, first_psn: 7, ..Default::default() };
            (rank, end)
        };
        let attributes =
            proto::EdgeAttributes { path_mtu: 1024, packets: 1, window: 8, ..Default::default() };
        let communicator = proto::StoredCommunicator {
            id: 1,
            group: 1,
            phase: Phase::Over.into(),
            why: "its ranks left".to_owned(),
            attributes: Some(attributes),
            ends: (1..33).map(end).collect(),
            ..Default::default()
        };
        let communicators = vec![communicator];
        let image = proto::Image {
            group_next: 2,
            communicator_next: 2,
            communicators,
            ..Default::default()
        };
        let bytes = image.encode_to_vec();
        let (remains, map) = read_image(&bytes).unwrap();
        assert_eq!(write_image(&remains, map.as_ref()), bytes);
    }

    #[test]
    fn a_stored_name_that_no_group_may_have_is_refused() {
        let read = |len: usize| {
            let group = GroupState {
                id: GroupId(7),
                name: "x".repeat(len),
                world_size: 2,
                tenant: 0,
                members: BTreeMap::new(),
                phase: GroupPhase::Ready,
            };
            let remains = ControllerRemains { groups: vec![group], ..ControllerRemains::default() };
            read_image(&write_image(&remains, None))
                .map(|(remains, _)| remains.groups[0].name.len())
        };
        assert_eq!(read(255).unwrap(), 255);
        assert_eq!(
            read(256).unwrap_err().to_string(),
            "the stored state cannot be read: the name of group 7 has 256 bytes, a name has 255 at most"
        );
    }
}
