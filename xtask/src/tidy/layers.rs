//! Which top-level module may use which: the one check that keeps a single crate from growing
//! import cycles. A new edge is an architectural change: it gets its own commit and its reasons.
//! Code for tests counts too. `lib.rs` and `main.rs` stand above the table.

use super::Fault;
use super::paths::{Named, paths};
use super::tree::{Tree, module_folder};

const RULE: &str = "layers";

/// A row of the table.
struct Layer {
    module: &'static str,
    /// 0 vocabulary, 1 pure logic, 2 edges, 3 drivers, 4 surfaces.
    ring: u8,
    may_use: &'static [&'static str],
}

const fn layer(ring: u8, module: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer {
        module,
        ring,
        may_use,
    }
}

/// Beside what a row says, rings 2–4 may use `task`, except these two, which are synchronous.
const WITHOUT_TASK: &[&str] = &["process", "shim"];

/// Stands for every module but `cli`, in the row of the composition root.
const ALL_BUT_CLI: &[&str] = &["*"];

#[rustfmt::skip]
const LAYERS: &[Layer] = &[
    layer(0, "model", &[]),
    layer(0, "diagnostic", &[]),
    layer(0, "task", &[]),
    layer(0, "clock", &["model"]),
    layer(0, "yaml", &["diagnostic"]),
    layer(1, "manifest", &["model", "diagnostic", "yaml"]),
    layer(1, "plan", &["model"]),
    layer(1, "prompt", &["model"]),
    layer(1, "guard", &["model"]),
    layer(1, "redact", &["model"]),
    layer(1, "price", &["model"]),
    layer(2, "config", &["model", "diagnostic", "yaml"]),
    layer(2, "telemetry", &["config"]),
    layer(2, "git", &["model"]),
    layer(2, "process", &["model"]),
    layer(2, "source", &["model", "clock", "git"]),
    layer(2, "store", &["model", "clock"]),
    layer(2, "credential", &["model", "clock"]),
    layer(2, "sandbox", &["model", "process"]),
    layer(2, "shim", &["model", "process", "sandbox"]),
    layer(2, "worktree", &["model", "clock", "git", "process", "sandbox"]),
    layer(2, "host", &[
        "model", "clock", "git", "credential", "process", "sandbox", "worktree", "gateway",
        "adapter",
    ]),
    layer(2, "gateway", &[
        "model", "clock", "git", "guard", "credential", "redact", "price", "tool",
    ]),
    layer(2, "tool", &["model", "clock", "guard", "sandbox"]),
    layer(2, "harness", &["model", "clock", "guard", "tool"]),
    layer(2, "adapter", &[
        "model", "clock", "process", "sandbox", "gateway", "redact", "tool", "harness",
    ]),
    layer(3, "dispatch", &[
        "model", "clock", "prompt", "guard", "redact", "price", "credential", "process", "sandbox",
        "worktree", "gateway", "tool", "adapter", "store",
    ]),
    layer(3, "execute", &[
        "model", "clock", "process", "worktree", "store", "gateway", "dispatch",
    ]),
    layer(3, "reconcile", &[
        "model", "clock", "diagnostic", "manifest", "plan", "price", "source", "process", "store",
        "worktree", "execute",
    ]),
    layer(4, "api", &[
        "model", "clock", "diagnostic", "telemetry", "store", "dispatch", "reconcile",
    ]),
    layer(4, "web", &["model", "api"]),
    layer(4, "daemon", ALL_BUT_CLI),
    layer(4, "cli", &[
        "model", "diagnostic", "yaml", "manifest", "plan", "config", "telemetry", "source", "git",
        "process", "shim", "host", "worktree", "store", "api", "daemon", "clock", "credential",
        "sandbox",
    ]),
];

/// The names of the modules in the given rings.
pub(super) fn in_rings(rings: &[u8]) -> impl Iterator<Item = &'static str> {
    LAYERS
        .iter()
        .filter(|layer| rings.contains(&layer.ring))
        .map(|layer| layer.module)
}

fn allows(layer: &Layer, target: &str) -> bool {
    let everything = layer.may_use == ALL_BUT_CLI && target != "cli";
    let task = target == "task" && layer.ring >= 2 && !WITHOUT_TASK.contains(&layer.module);
    target == layer.module || everything || task || layer.may_use.contains(&target)
}

/// The table itself: every name in it is a row, no row uses an outer ring, and there is no cycle.
pub(super) fn table(_: &Tree) -> Vec<Fault> {
    let place = "xtask/src/tidy/layers.rs";
    let faults = table_faults(LAYERS);
    faults
        .into_iter()
        .map(|text| Fault::new(place, 1, RULE, text))
        .collect()
}

fn table_faults(layers: &[Layer]) -> Vec<String> {
    let mut faults = Vec::new();
    for layer in layers {
        for target in layer.may_use.iter().filter(|target| **target != "*") {
            match layers.iter().find(|other| other.module == *target) {
                None => faults.push(format!("`{target}` has no row: add it")),
                Some(other) if other.ring > layer.ring => faults.push(format!(
                    "`{}` of ring {} may not use `{target}` of ring {}: turn the edge round",
                    layer.module, layer.ring, other.ring
                )),
                Some(_) => {}
            }
        }
    }
    // Take away what nothing left uses and what uses nothing left; a cycle is what remains.
    let uses =
        |user: &Layer, target: &Layer| user.module != target.module && allows(user, target.module);
    let mut left: Vec<&Layer> = layers.iter().collect();
    loop {
        let inside = |layer: &&Layer| {
            left.iter().any(|other| uses(other, layer))
                && left.iter().any(|other| uses(layer, other))
        };
        let kept: Vec<&Layer> = left.iter().copied().filter(inside).collect();
        if kept.len() == left.len() {
            break;
        }
        left = kept;
    }
    if !left.is_empty() {
        let names: Vec<&str> = left.iter().map(|layer| layer.module).collect();
        faults.push(format!(
            "a cycle among {}: remove an edge",
            names.join(", ")
        ));
    }
    faults
}

/// Every `crate::` and `super::` path below `src` against the table.
pub(super) fn imports(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, file) in tree.rust_below("src/") {
        let Some(own) = top_module(path) else {
            continue;
        };
        let Some(layer) = LAYERS.iter().find(|layer| layer.module == own) else {
            let text = format!("`{own}` is no module of the table: add its row, and argue it");
            faults.push(Fault::new(path, 1, RULE, text));
            continue;
        };
        let mut seen = Vec::new();
        for named in paths(&file.tokens) {
            let Some(target) = target(path, &named) else {
                continue;
            };
            if allows(layer, &target) || seen.contains(&target) {
                continue;
            }
            let text = complaint(&own, &target);
            faults.push(Fault::new(path, named.line, RULE, text));
            seen.push(target);
        }
        faults.extend(path_attributes(path, file));
    }
    faults
}

fn complaint(own: &str, target: &str) -> String {
    if target == "*" || target == "self" {
        return "brings in the whole crate: name the modules".to_owned();
    }
    if LAYERS.iter().any(|layer| layer.module == target) {
        return format!(
            "`{own}` may not use `{target}`: pass the value in, move the code inward, or argue a \
             new edge of the table"
        );
    }
    format!("`{target}` is no module of the table: name it through the module that it lives in")
}

/// `#[path]` would put a file where this rule doesn't look for it.
fn path_attributes(path: &str, file: &super::tree::File) -> Vec<Fault> {
    let windows = file.tokens.windows(4);
    let found = windows.filter(|w| w[0].is("#") && w[1].is("[") && w[2].is("path") && w[3].is("="));
    found
        .map(|w| {
            Fault::new(
                path,
                w[0].line,
                RULE,
                "`#[path]` hides where a module lies: move the file",
            )
        })
        .collect()
}

/// The top-level module of a file below `src`; none for `lib.rs` and `main.rs`.
fn top_module(path: &str) -> Option<String> {
    module_path(path).into_iter().next()
}

/// `src/a/b.rs` is `[a, b]`, `src/a/mod.rs` is `[a]`, `src/lib.rs` is `[]`.
fn module_path(path: &str) -> Vec<String> {
    let folder = module_folder(path);
    let below = folder.strip_prefix("src/").unwrap_or(&folder);
    below
        .split('/')
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The top-level module that a path leads to when it leads out of where it stands.
fn target(path: &str, named: &Named) -> Option<String> {
    let mut segments = named.segments.iter().map(String::as_str).peekable();
    if segments.peek() == Some(&"self") {
        segments.next();
    }
    if segments.peek() == Some(&"crate") {
        if named.segments.len() == 1 && !named.import {
            return None; // `pub(crate)`
        }
        let after = named.segments.get(1).map_or("self", String::as_str);
        return Some(after.to_owned());
    }
    let mut place = module_path(path);
    place.extend(named.inside.iter().cloned());
    if segments.peek() != Some(&"super") {
        return None;
    }
    while segments.peek() == Some(&"super") {
        segments.next();
        place.pop();
    }
    if !place.is_empty() {
        return None;
    }
    Some(segments.next().unwrap_or("self").to_owned())
}

#[cfg(test)]
mod tests {
    use super::{LAYERS, Tree, imports, layer, table_faults};

    /// What `imports` says of one file, as `line: first words`.
    fn said(path: &str, text: &str) -> Vec<String> {
        let faults = imports(&Tree::of(&[(path, text)]));
        let words = |text: &str| {
            text.split_whitespace()
                .take(5)
                .collect::<Vec<_>>()
                .join(" ")
        };
        faults
            .iter()
            .map(|fault| format!("{}: {}", fault.line, words(&fault.text)))
            .collect()
    }

    #[test]
    fn the_table_is_sound() {
        assert_eq!(table_faults(LAYERS), Vec::<String>::new());
    }

    #[test]
    fn an_unsound_table_is_noticed() {
        let cycle = [
            layer(1, "a", &["b"]),
            layer(1, "b", &["c"]),
            layer(1, "c", &["a", "e"]),
            layer(1, "d", &["a"]),
            layer(0, "e", &[]),
        ];
        assert_eq!(
            table_faults(&cycle),
            ["a cycle among a, b, c: remove an edge"]
        );
        let unknown = [layer(1, "a", &["b"])];
        assert_eq!(table_faults(&unknown), ["`b` has no row: add it"]);
        let outward = [layer(1, "a", &["b"]), layer(2, "b", &[])];
        assert_eq!(
            table_faults(&outward),
            ["`a` of ring 1 may not use `b` of ring 2: turn the edge round"]
        );
    }

    #[test]
    fn forbidden_edges_are_found_however_they_are_spelled() {
        let store = "`plan` may not use `store`:";
        let cases = [
            "use crate::store::Store;",
            "use crate::{model, store::Store};",
            "use {crate::store, std::fmt};",
            "fn f(x: &crate::store::Store) {}",
            "use super::super::store;",
            "mod a { use super::super::super::store::{Store}; }",
            "#[cfg(test)] mod tests { fn f() { crate::store::open() } }",
            "#[serde(with = \"crate::store::hex\")] struct S;",
            "use self::super::super::store;",
            "macro_rules! m { () => { $crate::store::open() } }",
        ];
        for text in cases {
            assert_eq!(
                said("src/plan/input.rs", text),
                [format!("1: {store}")],
                "{text}"
            );
        }
        assert_eq!(
            said("src/clock.rs", "\nuse super::store;"),
            ["2: `clock` may not use `store`:"]
        );
        assert_eq!(
            said("src/plan/mod.rs", "use crate::*;"),
            ["1: brings in the whole crate:"]
        );
        assert_eq!(
            said("src/plan/mod.rs", "use crate as c;"),
            ["1: brings in the whole crate:"]
        );
        assert_eq!(
            said("src/plan/mod.rs", "use super::*;"),
            ["1: brings in the whole crate:"]
        );
        assert_eq!(said("src/utils/mod.rs", ""), ["1: `utils` is no module of"]);
        assert_eq!(
            said("src/plan/mod.rs", "crate::helper!()"),
            ["1: `helper` is no module of"]
        );
        assert_eq!(
            said("src/plan/mod.rs", "#[path = \"../store/x.rs\"] mod x;"),
            ["1: `#[path]` hides where a module"]
        );
        assert_eq!(
            said("src/process/mod.rs", "use crate::task;"),
            ["1: `process` may not use `task`:"]
        );
        assert_eq!(
            said("src/daemon/mod.rs", "use crate::cli;"),
            ["1: `daemon` may not use `cli`:"]
        );
    }

    #[test]
    fn allowed_edges_are_let_through() {
        let cases = [
            (
                "src/plan/input.rs",
                "use crate::model::{id, kind}; use super::report; use crate::plan::x;",
            ),
            (
                "src/plan/mod.rs",
                "pub(crate) mod x { use super::y; } pub(in crate::plan) fn f() {}",
            ),
            (
                "src/plan/mod.rs",
                "// crate::store\n/// [`crate::store`]\n//! crate::store\nfn f() { \"crate store\" }",
            ),
            ("src/store/mod.rs", "use crate::{model, clock, task};"),
            ("src/daemon/mod.rs", "use crate::{api, task, plan};"),
            ("src/lib.rs", "use crate::store;"),
            ("src/main.rs", "use homeostat::cli;"),
        ];
        for (path, text) in cases {
            assert_eq!(said(path, text), Vec::<String>::new(), "{path} {text}");
        }
    }
}
