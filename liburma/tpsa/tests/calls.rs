//! The calls of the fabric service, as a C program makes them.
//!
//! One table per process: each test uses EIDs of its own; the topology is one test's.
#![expect(unsafe_code, reason = "the functions are C functions")]

use std::{ffi::CStr, io, process::Command, ptr::null, ptr::null_mut};

use tpsa::{
    abi::{
        char_of, urma_topo_map_t, urma_topo_node, uvs_eid_t, uvs_main_ue_eid_batch_entry_t,
        uvs_main_ue_eid_entry_t, uvs_path_set_t,
    },
    *,
};

const EINVAL: i32 = -22;
const ENOENT: i32 = 2;

fn eid(family: u8, number: u8) -> uvs_eid_t {
    uvs_eid_t::from_raw([family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, number])
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Plain C memory, all zero.
fn zeroed<T>() -> Box<T> {
    // SAFETY: used for structs of numbers only.
    unsafe { Box::<T>::new_zeroed().assume_init() }
}

fn main_of(of: uvs_eid_t) -> Result<uvs_eid_t, i32> {
    let mut main = uvs_eid_t::default();
    // SAFETY: two places of this function.
    match unsafe { uvs_lookup_main_ue_eid(&raw const of, &raw mut main) } {
        0 => Ok(main),
        _ => Err(errno()),
    }
}

#[test]
fn main_eids_are_found_replaced_deleted() {
    let entry = |of, main| uvs_main_ue_eid_entry_t { eid: of, main_ue_eid: main };
    #[repr(C, packed)]
    struct Odd(u8, uvs_main_ue_eid_entry_t);
    let insert = |entry: uvs_main_ue_eid_entry_t| {
        let packed = Odd(0, entry);
        // SAFETY: an entry of this function.
        unsafe { uvs_insert_main_ue_eid(&raw const packed.1) }
    };
    let (one, main, other) = (eid(1, 1), eid(1, 2), eid(1, 3));
    assert_eq!(main_of(one), Err(ENOENT));
    assert_eq!(insert(entry(one, main)), 0);
    assert_eq!(main_of(one), Ok(main));
    assert_eq!(insert(entry(one, other)), 0);
    assert_eq!(main_of(one), Ok(other));
    assert_eq!(insert(entry(uvs_eid_t::default(), main)), -1);
    assert_eq!(insert(entry(one, uvs_eid_t::default())), -1);
    assert_eq!(main_of(one), Ok(other));
    // SAFETY: an EID of this function.
    assert_eq!(unsafe { uvs_delete_main_ue_eid(&raw const one) }, 0);
    // SAFETY: the pointers name locals of this test that outlive the call.
    assert_eq!((unsafe { uvs_delete_main_ue_eid(&raw const one) }, errno()), (-1, ENOENT));
    assert_eq!(main_of(one), Err(ENOENT));
}

#[test]
fn a_batch_goes_in_whole_or_not_at_all() {
    let mut batch = zeroed::<uvs_main_ue_eid_batch_entry_t>();
    batch.main_ue_eid = eid(2, 200);
    for (number, place) in (1..).zip(batch.eids.iter_mut().take(3)) {
        *place = eid(2, number);
    }
    for wrong in [0, 129, u32::MAX] {
        batch.eid_num = wrong;
        // SAFETY: an entry of this function.
        assert_eq!(unsafe { uvs_insert_main_ue_eid_batch(&raw const *batch) }, EINVAL, "{wrong}");
    }
    batch.eid_num = 4;
    // The fourth is no EID.
    // SAFETY: an entry of this function.
    assert_eq!(unsafe { uvs_insert_main_ue_eid_batch(&raw const *batch) }, -1);
    assert_eq!(main_of(eid(2, 1)), Err(ENOENT));
    batch.eid_num = 3;
    // SAFETY: an entry of this function.
    assert_eq!(unsafe { uvs_insert_main_ue_eid_batch(&raw const *batch) }, 0);
    assert!((1..=3).all(|number| main_of(eid(2, number)) == Ok(eid(2, 200))));
}

#[test]
fn flushing_empties_the_table() {
    // In a process of its own: the others' EIDs would go too.
    if std::env::var_os("FLUSH").is_none() {
        let me = std::env::current_exe().expect("this test");
        let child = Command::new(me).arg("flushing_empties_the_table").env("FLUSH", "1").status();
        assert!(child.expect("it starts").success());
        return;
    }
    let entry = uvs_main_ue_eid_entry_t { eid: eid(3, 1), main_ue_eid: eid(3, 2) };
    // SAFETY: an entry of this function.
    assert_eq!(unsafe { uvs_insert_main_ue_eid(&raw const entry) }, 0);
    // SAFETY: the call takes no pointers; the library locks its own tables.
    assert_eq!(unsafe { uvs_flush_main_ue_eid() }, 0);
    assert_eq!(main_of(eid(3, 1)), Err(ENOENT));
}

#[test]
fn aggregated_devices_have_names() {
    let create = |mut of: uvs_eid_t, name: &CStr| {
        // SAFETY: an EID and a string of this function.
        unsafe { uvs_create_agg_dev(&raw mut of, name.as_ptr()) }
    };
    let name_of = |mut of: uvs_eid_t, len: usize| {
        let mut text = [1; 80];
        // SAFETY: an EID and a buffer of this function.
        let status = unsafe { uvs_get_device_name_by_eid(&raw mut of, text.as_mut_ptr(), len) };
        // SAFETY: the call ended it with a zero, or there is one here.
        let text =
            unsafe { CStr::from_ptr(if status == 0 { text.as_ptr() } else { c"".as_ptr() }) };
        (status, text.to_str().expect("ascii").to_owned())
    };
    assert_eq!(create(eid(4, 1), c"bonding_dev_0"), 0);
    assert_eq!((create(eid(4, 1), c"another"), errno()), (-1, 17));
    assert_eq!((create(eid(4, 2), c"bonding_dev_0"), errno()), (-1, 17));
    assert_eq!(create(eid(4, 2), c""), EINVAL);
    assert_eq!(create(eid(4, 2), &std::ffi::CString::new([b'x'; 64]).expect("text")), EINVAL);
    assert_eq!(create(uvs_eid_t::default(), c"none"), -1);
    assert_eq!(name_of(eid(4, 1), 64), (0, "bonding_dev_0".to_owned()));
    assert_eq!(name_of(eid(4, 1), 5), (0, "bond".to_owned()));
    assert_eq!(name_of(eid(4, 1), 0).0, EINVAL);
    assert_eq!(name_of(eid(4, 1), 65).0, EINVAL);
    assert_eq!((name_of(eid(4, 9), 64).0, errno()), (-1, ENOENT));
    let mut of = eid(4, 1);
    // SAFETY: an EID of this function.
    assert_eq!(unsafe { uvs_delete_agg_dev(&raw mut of) }, 0);
    // SAFETY: the pointers name locals of this test that outlive the call.
    assert_eq!((unsafe { uvs_delete_agg_dev(&raw mut of) }, errno()), (-1, ENOENT));
}

fn paths(src: uvs_eid_t, dst: uvs_eid_t, tp_type: u32, iodie: u8) -> (i32, Box<uvs_path_set_t>) {
    let mut set = zeroed::<uvs_path_set_t>();
    // SAFETY: the pointers name locals of this test that outlive the call.
    let status =
        unsafe { uvs_get_path_set(&raw const src, &raw const dst, tp_type, iodie, &raw mut *set) };
    (status, set)
}

#[test]
fn every_pair_of_eids_has_a_path() {
    for tp_type in 0..3 {
        let (status, set) = paths(eid(5, 1), eid(5, 2), tp_type, 1);
        assert_eq!((status, set.path_count), (0, 1));
        assert_eq!((set.paths[0].src_eid, set.paths[0].dst_eid), (eid(5, 1), eid(5, 2)));
    }
    assert_eq!(paths(eid(5, 1), eid(5, 2), 3, 0).0, EINVAL);
    assert_eq!(paths(uvs_eid_t::default(), eid(5, 2), 0, 0).0, EINVAL);
    assert_eq!(paths(eid(5, 1), uvs_eid_t::default(), 0, 0).0, EINVAL);
}

fn chars(of: uvs_eid_t) -> [core::ffi::c_char; 16] {
    of.raw().map(char_of)
}

/// Two nodes, each with one aggregated device of two dies with two ports.
fn topology() -> Vec<urma_topo_node> {
    let mut nodes = Vec::new();
    for number in 0..2 {
        let mut node = zeroed::<urma_topo_node>();
        (node.super_node_id, node.node_id) = (7, u32::from(number));
        node.agg_devs[3].agg_eid = chars(eid(6 + number, 1));
        for (die, ue) in (0..).zip(&mut node.agg_devs[3].ues) {
            (ue.chip_id, ue.die_id, ue.entity_id) = (0, u32::from(die), u32::from(die));
            ue.primary_eid = chars(eid(6 + number, 10 + die));
            for (port, place) in (0..).zip(ue.port_eid.iter_mut().take(2)) {
                *place = chars(eid(6 + number, 20 + 4 * die + port));
            }
        }
        nodes.push(*node);
    }
    nodes
}

#[test]
fn the_topology_is_kept_and_followed() {
    let mut nodes = topology();
    let size = u32::try_from(size_of::<urma_topo_node>()).expect("a size");
    let set = |nodes: &mut Vec<urma_topo_node>, size, count| {
        // SAFETY: nodes of this function; a wrong size or count is refused before they are read.
        unsafe { uvs_set_topo_info(nodes.as_mut_ptr().cast(), size, count) }
    };
    assert_eq!(set(&mut nodes, size - 1, 2), EINVAL);
    assert_eq!(set(&mut nodes, size, 0), EINVAL);
    assert_eq!(set(&mut nodes, size, 1025), EINVAL);
    let mut map = zeroed::<urma_topo_map_t>();
    // SAFETY: a map of this function.
    let read = |map: &mut urma_topo_map_t| unsafe { uvs_get_topo_info((&raw mut *map).cast()) };
    assert_eq!((read(&mut map), errno()), (-1, ENOENT));
    assert_eq!(set(&mut nodes, size, 2), 0);
    assert_eq!((read(&mut map), map.node_num), (0, 2));
    assert_eq!((map.topo_infos[1].node_id, map.topo_infos[1].super_node_id), (1, 7));
    // The main EID of a die's ports is its primary one.
    assert_eq!(main_of(eid(6, 25)), Ok(eid(6, 11)));
    let (status, by_die) = paths(eid(6, 1), eid(7, 1), 0, 1);
    assert_eq!((status, by_die.path_count, by_die.die_count), (0, 2, 2));
    assert_eq!((by_die.paths[1].src_eid, by_die.paths[1].dst_eid), (eid(6, 11), eid(7, 11)));
    let (_, by_port) = paths(eid(6, 1), eid(7, 1), 1, 0);
    assert_eq!((by_port.path_count, by_port.dst_node.node_id), (4, 1));
    // SAFETY: any bytes are port numbers.
    assert_eq!(unsafe { by_port.paths[1].src_port.u }.port_idx, 1);
    // A matrix of links says which ports meet: port 1 of die 0 with port 0 of die 1.
    nodes[1].links[1][9] = 1;
    assert_eq!(set(&mut nodes, size, 2), 0);
    let (_, linked) = paths(eid(6, 1), eid(7, 1), 0, 0);
    assert_eq!((linked.path_count, linked.paths[0].dst_eid), (1, eid(7, 24)));
    // Another fabric's nodes add main EIDs, and change no topology.
    let mut shared = topology();
    shared.truncate(1);
    shared[0].agg_devs[3].ues[0].primary_eid = chars(eid(8, 1));
    // SAFETY: the pointers name locals of this test that outlive the call.
    assert_eq!(unsafe { uvs_set_share_topo_info(shared.as_mut_ptr().cast(), size, 1) }, 0);
    assert_eq!(main_of(eid(8, 1)), Ok(eid(8, 1)));
    assert_eq!((read(&mut map), map.node_num), (0, 2));
}

/// Whether this is the process that the test named so started for itself, as its tables are no other test's.
fn is_alone(name: &str) -> bool {
    if std::env::var_os("ALONE").is_some() {
        return true;
    }
    let me = std::env::current_exe().expect("this test");
    let child = Command::new(me).args(["--exact", name]).env("ALONE", "1").status();
    assert!(child.expect("it starts").success());
    false
}

fn set_topology(nodes: &mut [urma_topo_node]) -> i32 {
    let size = u32::try_from(size_of::<urma_topo_node>()).expect("a size");
    let count = u32::try_from(nodes.len()).expect("a count");
    // SAFETY: the pointer and the count are of one slice of nodes, which the call only reads.
    unsafe { uvs_set_topo_info(nodes.as_mut_ptr().cast(), size, count) }
}

#[test]
fn a_path_says_which_ports_of_which_nodes_it_joins() {
    if !is_alone("a_path_says_which_ports_of_which_nodes_it_joins") {
        return;
    }
    let mut nodes = topology();
    nodes[0].r#type = 1;
    // Chip 300 does not fit into the number of a path's port.
    (nodes[0].agg_devs[3].ues[0].chip_id, nodes[0].agg_devs[3].ues[1].chip_id) = (5, 300);
    nodes[1].super_node_id = 8;
    assert_eq!(set_topology(&mut nodes), 0);
    let (_, set) = paths(eid(6, 1), eid(7, 1), 0, 0);
    assert_eq!((set.topo_type, set.chip_count, set.die_count, set.path_count), (1, 2, 2, 4));
    assert_eq!((set.src_node.super_node_id, set.src_node.node_id), (7, 0));
    assert_eq!((set.dst_node.super_node_id, set.dst_node.node_id), (8, 1));
    for (index, (die, port)) in [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().enumerate() {
        let path = &set.paths[index];
        let number = 20 + 4 * die + port;
        assert_eq!((path.src_eid, path.dst_eid), (eid(6, number), eid(7, number)));
        // SAFETY: any bytes are port numbers.
        let src = unsafe { path.src_port.u };
        // SAFETY: any bytes are port numbers.
        let dst = unsafe { path.dst_port.u };
        let chip = [5, 255][usize::from(die)];
        assert_eq!((src.chip_id, src.die_id, src.port_idx, src.reserved), (chip, die, port, 0));
        assert_eq!((dst.chip_id, dst.die_id, dst.port_idx, dst.reserved), (0, die, port, 0));
    }
    // The other way: that node is one of a mesh, on one chip.
    let (_, back) = paths(eid(7, 1), eid(6, 1), 2, 1);
    assert_eq!((back.topo_type, back.chip_count, back.die_count, back.path_count), (0, 1, 2, 2));
    assert_eq!((back.src_node.node_id, back.dst_node.node_id), (1, 0));
    assert_eq!((back.paths[0].src_eid, back.paths[0].dst_eid), (eid(7, 10), eid(6, 10)));
    // One end that no node has.
    for (src, dst) in [(eid(6, 1), eid(9, 9)), (eid(9, 9), eid(6, 1))] {
        let (_, set) = paths(src, dst, 0, 0);
        assert_eq!((set.topo_type, set.chip_count, set.die_count, set.path_count), (0, 1, 1, 1));
        assert_eq!((set.paths[0].src_eid, set.paths[0].dst_eid), (src, dst));
        assert_eq!((set.src_node.super_node_id, set.dst_node.super_node_id), (0, 0));
        // SAFETY: any bytes are port numbers.
        assert_eq!(unsafe { set.paths[0].src_port.value }, 0);
    }
    // A matrix says nothing of dies; and of more paths than a set holds the first ones are there.
    for node in &mut nodes {
        node.links = [[1; 18]; 18];
        for ue in &mut node.agg_devs[3].ues {
            for (port, place) in (0..).zip(&mut ue.port_eid) {
                *place = chars(eid(60 + u8::try_from(ue.die_id).expect("a die"), port + 1));
            }
        }
    }
    assert_eq!(set_topology(&mut nodes), 0);
    let (_, dies) = paths(eid(6, 1), eid(7, 1), 0, 1);
    assert_eq!(dies.path_count, 2);
    let (status, ports) = paths(eid(6, 1), eid(7, 1), 0, 0);
    assert_eq!((status, ports.path_count), (0, 16));
    assert_eq!((ports.paths[0].dst_eid, ports.paths[15].dst_eid), (eid(60, 1), eid(61, 7)));
    assert_eq!(ports.paths[15].src_eid, eid(60, 1));
}

#[test]
fn the_smallest_primary_eid_answers_for_an_entity_of_a_chip() {
    if !is_alone("the_smallest_primary_eid_answers_for_an_entity_of_a_chip") {
        return;
    }
    let mut node = zeroed::<urma_topo_node>();
    // Entity and chip, primary EID, port EID.
    for (device, (entity, chip, primary, port)) in
        [(1, 0, 40, 41), (1, 0, 30, 31), (1, 1, 20, 21), (2, 0, 50, 51), (1, 0, 35, 36)]
            .into_iter()
            .enumerate()
    {
        let ue = &mut node.agg_devs[10 * device].ues[device % 2];
        (ue.entity_id, ue.chip_id) = (entity, chip);
        ue.primary_eid = chars(eid(10, primary));
        ue.port_eid[8] = chars(eid(10, port));
    }
    // Without a primary EID it is no endpoint.
    node.agg_devs[99].ues[0].port_eid[0] = chars(eid(10, 99));
    assert_eq!(set_topology(std::slice::from_mut(&mut *node)), 0);
    for (of, main) in [
        (40, 30),
        (41, 30),
        (30, 30),
        (31, 30),
        (35, 30),
        (36, 30),
        (20, 20),
        (21, 20),
        (50, 50),
        (51, 50),
    ] {
        assert_eq!(main_of(eid(10, of)), Ok(eid(10, main)), "{of}");
    }
    assert_eq!(main_of(eid(10, 99)), Err(ENOENT));
    assert_eq!(main_of(uvs_eid_t::default()), Err(ENOENT), "no EID");
}

#[test]
fn batches_and_devices_go_up_to_their_limits() {
    if !is_alone("batches_and_devices_go_up_to_their_limits") {
        return;
    }
    let mut batch = zeroed::<uvs_main_ue_eid_batch_entry_t>();
    (batch.main_ue_eid, batch.eid_num) = (eid(11, 200), 128);
    for (number, place) in (0..).zip(&mut batch.eids) {
        *place = eid(11, number);
    }
    // SAFETY: an entry of this function.
    assert_eq!(unsafe { uvs_insert_main_ue_eid_batch(&raw const *batch) }, 0);
    assert!((0..128).all(|number| main_of(eid(11, number)) == Ok(eid(11, 200))));
    let create = |family: u8, number: u8| {
        let name = std::ffi::CString::new(format!("dev{family}-{number}")).expect("text");
        let mut of = eid(family, number);
        // SAFETY: an EID and a string of this function.
        unsafe { uvs_create_agg_dev(&raw mut of, name.as_ptr()) }
    };
    assert!((0..=255).all(|number| create(12, number) == 0), "256 devices");
    assert_eq!((create(13, 1), errno()), (-1, 28));
    let mut gone = eid(12, 7);
    // SAFETY: an EID of this function.
    assert_eq!(unsafe { uvs_delete_agg_dev(&raw mut gone) }, 0);
    assert_eq!(create(13, 1), 0, "one place is free");
}

#[test]
fn bad_pointers_are_refused() {
    let mut of = eid(9, 1);
    let text = null::<core::ffi::c_char>();
    // Each is refused before anything is read.
    macro_rules! refused {
        ($($call:expr;)*) => {$(
            // SAFETY: each pointer is NULL, which the library refuses, or names a local of this test.
            assert_eq!(unsafe { $call }, EINVAL);
        )*};
    }
    refused! {
        uvs_create_agg_dev(null_mut(), c"x".as_ptr());
        uvs_create_agg_dev(&raw mut of, text);
        uvs_delete_agg_dev(null_mut());
        uvs_get_device_name_by_eid(&raw mut of, null_mut(), 8);
        uvs_get_device_name_by_eid(null_mut(), [0; 8].as_mut_ptr(), 8);
        uvs_set_topo_info(null_mut(), 166_228, 1);
        uvs_set_share_topo_info(null_mut(), 166_228, 1);
        uvs_get_topo_info(null_mut());
        uvs_insert_main_ue_eid(null());
        uvs_insert_main_ue_eid_batch(null());
        uvs_delete_main_ue_eid(null());
        uvs_lookup_main_ue_eid(&raw const of, null_mut());
        uvs_lookup_main_ue_eid(null(), &raw mut of);
        uvs_get_path_set(null(), &raw const of, 0, 0, null_mut());
        uvs_get_path_set(&raw const of, null(), 0, 0, null_mut());
        uvs_get_path_set(&raw const of, &raw const of, 0, 0, null_mut());
    }
}

/// What the shared object exports against the list, and the name that it is looked for by.
#[test]
fn the_shared_object_exports_what_is_listed() {
    let me = std::env::current_exe().expect("this test");
    let library = me.parent().expect("a folder").join("libtpsa.so");
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output();
    let text = String::from_utf8(nm.expect("nm starts").stdout).expect("names");
    let mut exported: Vec<_> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let list = include_str!("../../src/symbols.txt");
    let ours = list.lines().filter_map(|line| line.strip_prefix("libtpsa "));
    let mut listed: Vec<_> = ours.filter_map(|line| line.split(' ').next()).collect();
    exported.sort_unstable();
    listed.sort_unstable();
    assert_eq!((exported, listed.len()), (listed.clone(), 12));
    let header = Command::new("readelf").arg("-d").arg(&library).output().expect("readelf starts");
    assert!(String::from_utf8_lossy(&header.stdout).contains("[libtpsa.so.0]"));
}
