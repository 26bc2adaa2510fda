//! The functions of the installed headers, as tables for C programs.
//!
//! *Owns*: what a declaration says of a function's arguments and answer. *Takes*: the headers as
//! installed, the list of exported symbols. *Gives*: rows of C. *Must not*: leave a function out
//! because it was overlooked: what is exported and not declared is a failure.

use std::{collections::BTreeSet, fs};

use urma_c_tests::{Prefix, root};

/// Types that are objects of the library, and their names in the table.
const OBJECTS: [(&str, &str); 12] = [
    ("urma_context_t", "CTX"),
    ("urma_jfce_t", "JFCE"),
    ("urma_jfc_t", "JFC"),
    ("urma_jfs_t", "JFS"),
    ("urma_jfr_t", "JFR"),
    ("urma_jetty_t", "JETTY"),
    ("urma_jetty_grp_t", "GRP"),
    ("urma_target_jetty_t", "TARGET"),
    ("urma_target_seg_t", "SEG"),
    ("urma_token_id_t", "TOKEN_ID"),
    ("urma_notifier_t", "NOTIFIER"),
    ("urma_device_t", "DEVICE"),
];

/// Headers that declare functions.
const HEADERS: [&str; 7] = [
    "urma_api.h",
    "urma_types.h",
    "urma_perf.h",
    "urma_provider.h",
    "urma_ubagg.h",
    "urma_private.h",
    "uvs_api.h",
];

/// What no header declares, as known programs declare it.
const UNDECLARED: &str = include_str!("../../programs/undeclared.h");

/// An exported function that no table can call, and why.
const LEFT_OUT: [(&str, &str); 9] = [
    ("get_cpu_mhz", "answers with a floating-point number, and takes nothing that can be bad"),
    ("urma_init_abi_26_06", "is urma_init by another name"),
    ("urma_init_abi_25_12_0_b081", "is urma_init by another name"),
    ("ub_find_first_bit", "believes its arguments, and has no number for a refusal"),
    ("ub_find_first_zero_bit", "as ub_find_first_bit"),
    ("ub_find_next_bit", "as ub_find_first_bit"),
    ("ub_find_next_zero_bit", "as ub_find_first_bit"),
    ("ub_hash_bytes", "as ub_find_first_bit"),
    ("ub_hmap_remove", "believes its arguments, and has no answer"),
];

/// Arguments that may be NULL, by function (`*`: any) and name.
const OPTIONAL: [(&str, &str); 7] = [
    // Between a driver and its kernel module: not read.
    ("*", "udata"),
    ("*", "udrv_data"),
    // All defaults.
    ("urma_init", "conf"),
    // Policy NONE has no token.
    ("*", "token_value"),
    // The caller's own, handed back.
    ("urma_advise_jfr_async", "cb_arg"),
    // Takes the tag away.
    ("urma_log_set_thread_tag", "tag"),
    ("ub_hugemalloc", "hint"),
];

/// Types that may lie at any address.
const ANYWHERE: [&str; 7] = [
    "void",
    "char",
    "uint8_t",
    "bool",
    "uvs_eid_t",
    "uvs_main_ue_eid_entry_t",
    "urma_tp_attr_value_t",
];

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Param {
    /// Its type, as the header writes it.
    pub(crate) of: String,
    pub(crate) name: String,
    /// What it is in the table.
    pub(crate) kind: &'static str,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The type of its answer.
    pub(crate) answer: String,
    pub(crate) params: Vec<Param>,
}

/// Declarations of a text, each on one line.
fn declarations(text: &str) -> Vec<String> {
    let pieces = text.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, rest)| rest));
    let code: String = pieces.collect();
    let lines =
        code.lines().filter(|line| !line.starts_with('#') && !line.contains("extern \"C\""));
    let joined = lines.collect::<Vec<_>>().join(" ");
    joined.split(';').map(|one| one.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

impl Param {
    /// `None`: there is no parameter.
    fn of(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches("const ");
        let (of, name) = text.rsplit_once([' ', '*'])?;
        let name = name.trim_end_matches("[]").to_owned();
        let base = of.trim_start_matches("struct ").split([' ', '*']).next().unwrap_or_default();
        let stars = text.matches('*').count() + text.matches("[]").count();
        let of = format!("{base}{}", "*".repeat(stars));
        Some(Self { of, name, kind: kind(base, stars) })
    }
}

fn kind(base: &str, stars: usize) -> &'static str {
    let object = OBJECTS.iter().find(|(name, _)| *name == base);
    match (stars, object) {
        (0, _) if base == "urma_eid_t" => "EID",
        (0, _) if base.contains("_cb") => "FUNCTION",
        (0, _) => "NUMBER",
        (1, Some((_, object))) => object,
        (1, None) if ANYWHERE.contains(&base) => "BYTES",
        _ => "POINTER",
    }
}

impl Function {
    /// `None` for what is no function.
    pub(crate) fn of(declaration: &str) -> Option<Self> {
        let (head, arguments) = declaration.split_once('(')?;
        let (_, name) = head.rsplit_once([' ', '*'])?;
        let is_ours = ["urma_", "uvs_", "ub_"].iter().any(|start| name.starts_with(start));
        if !is_ours || declaration.starts_with("typedef") || head.contains(['=', '{', '}']) {
            return None;
        }
        let answer = head.strip_suffix(name)?.trim().trim_start_matches("const ").replace(' ', "");
        let arguments = arguments.split_once(')').map_or(arguments, |(list, _)| list);
        let params = arguments.split(',').filter_map(Param::of).collect();
        Some(Self { name: name.to_owned(), answer, params })
    }

    /// Whether it fills in an object of its caller's.
    fn fills(&self, param: &Param) -> bool {
        let verbs = ["create_", "alloc_", "register_", "import_"];
        let verb = self.name.strip_prefix("urma_cmd_");
        let makes = verb.is_some_and(|rest| verbs.iter().any(|verb| rest.starts_with(verb)));
        let home = if self.name == "urma_cmd_create_context" { "" } else { "ctx" };
        makes && param.name != home && param.name != "notifier"
    }

    fn is_optional(&self, param: &Param) -> bool {
        let is_of = |(function, name): &(&str, &str)| {
            (*function == "*" || *function == self.name) && *name == param.name
        };
        OPTIONAL.iter().any(is_of)
    }

    /// How a refusal looks.
    pub(crate) fn form(&self) -> char {
        match self.answer.as_str() {
            "void" => 'v',
            answer if answer.ends_with('*') => 'p',
            // An int that is a status.
            "int" if self.name == "urma_modify_tp" => 's',
            "int" if self.name.starts_with("urma_cmd_") => 'n',
            "int" | "ssize_t" => 'i',
            "bool" | "uint64_t" | "urma_vlog_level_t" => 'v',
            _ => 's',
        }
    }

    /// A row of the table.
    pub(crate) fn row(&self) -> String {
        let param = |param: &Param| {
            let Param { of, name, kind } = param;
            let own = u8::from(self.fills(param) && OBJECTS.iter().any(|(_, of)| of == kind));
            let optional = u8::from(self.is_optional(param));
            format!("{{{kind}, \"{of}\", \"{name}\", {own}, {optional}}}")
        };
        let params: Vec<_> = self.params.iter().map(param).collect();
        let list = if params.is_empty() { "{0}".to_owned() } else { params.join(", ") };
        let Self { name, answer, .. } = self;
        format!("{{\"{name}\", '{}', \"{answer}\", {}, {{{list}}}}},\n", self.form(), params.len())
    }
}

/// Every function of the headers and of the list of what no header declares, once.
pub(crate) fn functions(prefix: &Prefix) -> Vec<Function> {
    let header = |name: &&str| {
        let path = prefix.path.join("include/ub/umdk/urma").join(name);
        fs::read_to_string(path).expect("a header")
    };
    let texts = HEADERS.iter().map(header).chain([UNDECLARED.to_owned()]);
    let all = texts.flat_map(|text| declarations(&text));
    let mut known = BTreeSet::new();
    all.filter_map(|one| Function::of(&one)).filter(|of| known.insert(of.name.clone())).collect()
}

/// Every exported function that is in no table.
pub(crate) fn left_out() -> impl Iterator<Item = &'static str> {
    LEFT_OUT.iter().map(|(name, _)| *name)
}

/// Every symbol that release 26.06 of `library` exports.
fn exported() -> Vec<String> {
    let list = root().join("liburma/src/symbols.txt");
    let text = fs::read_to_string(list).expect("the list of symbols");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect()
}

#[test]
fn every_exported_function_is_in_the_table() {
    let table: BTreeSet<_> = functions(&crate::INSTALLED).into_iter().map(|of| of.name).collect();
    let left_out: BTreeSet<_> = LEFT_OUT.iter().map(|(name, _)| (*name).to_owned()).collect();
    let exported: BTreeSet<_> = exported().into_iter().collect();
    assert!(exported.len() > 250, "{}", exported.len());
    let known: BTreeSet<_> = table.union(&left_out).cloned().collect();
    let missing: Vec<_> = exported.symmetric_difference(&known).collect();
    assert!(missing.is_empty(), "exported and not in the table, or the reverse: {missing:?}");
}

#[test]
fn arguments_are_distinguished() {
    let send = "urma_status_t urma_send( urma_jfs_t *jfs, const urma_token_t *token, uint64_t src)";
    let row = Function::of(send).expect("a function").row();
    let params = "{JFS, \"urma_jfs_t*\", \"jfs\", 0, 0}, {POINTER, \"urma_token_t*\", \"token\", 0, 0}, \
                  {NUMBER, \"uint64_t\", \"src\", 0, 0}";
    assert_eq!(row, format!("{{\"urma_send\", 's', \"urma_status_t\", 3, {{{params}}}}},\n"));
    let list = "int urma_wait_jfc(urma_jfce_t *jfce, urma_jfc_t *jfc[])";
    let of = Function::of(list).expect("a function");
    assert_eq!((of.params[1].kind, of.params[1].of.as_str()), ("POINTER", "urma_jfc_t**"));
    assert_eq!(Function::of("urma_jfc_t *(*create_jfc)(urma_context_t *ctx)"), None);
}
