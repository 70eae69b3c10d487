//! Giving up privileges for good, and proving it.

use std::fs;
use std::io;

use rustix::process::{Gid, Uid, getegid, geteuid, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::link::{failed, refused};
use super::setup::close_to_debuggers;
use crate::process::control::{Attestation, Failed, Prepare, SandboxKind, Stage};

/// Becomes the run's user, without groups, capabilities or a way to gain any, with the usual umask.
/// Calls on the thread are calls on the process: there is one.
pub(super) fn give_up(prepare: &Prepare) -> Result<(), Failed> {
    let (uid, gid) = (prepare.uid, prepare.gid);
    let switches = geteuid().is_root();
    if uid == 0 || (switches && gid == 0) {
        return Err(refused(Stage::Identity, "an agent never runs as root"));
    }
    let attempt = |doing: &str, result: rustix::io::Result<()>| {
        result.map_err(|error| failed(Stage::Identity, doing, &error.into()))
    };
    if switches {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
        attempt("leave groups", set_thread_groups(&[]))?;
        attempt("change group", set_thread_res_gid(group, group, group))?;
        attempt("change user", set_thread_res_uid(user, user, user))?;
    } else if geteuid().as_raw() != uid || getegid().as_raw() != gid {
        return Err(refused(
            Stage::Identity,
            "only root can run an agent as somebody else",
        ));
    }
    attempt("forgo privileges", set_no_new_privs(true))?;
    attempt("drop ambient capabilities", clear_ambient_capability_set())?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    attempt("drop capabilities", set_capabilities(None, none))?;
    close_to_debuggers().map_err(|error| failed(Stage::Identity, "hide from debuggers", &error))?;
    // Worktrees are read by people who are not the run's user; what is secret is not in them.
    umask(rustix::fs::Mode::from_raw_mode(0o022));
    Ok(())
}

/// Tries to become root again, and has the kernel say who we are.
pub(super) fn attest() -> Result<Attestation, Failed> {
    let root = Uid::ROOT;
    if set_thread_res_uid(root, root, root).is_ok() || set_thread_groups(&[Gid::ROOT]).is_ok() {
        return Err(refused(Stage::Attest, "root can be regained"));
    }
    let status = fs::read_to_string("/proc/self/status")
        .map_err(|error| failed(Stage::Attest, "read /proc/self/status", &error))?;
    parse(&status).ok_or_else(|| {
        let error = io::Error::from(io::ErrorKind::InvalidData);
        failed(Stage::Attest, "make sense of /proc/self/status", &error)
    })
}

/// None when a field is absent or odd, or real, effective, saved and file-system ids differ.
fn parse(status: &str) -> Option<Attestation> {
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    let numbers = |name: &str| -> Option<Vec<u32>> {
        field(name)?
            .split_ascii_whitespace()
            .map(|number| number.parse().ok())
            .collect()
    };
    let one = |name: &str| {
        let ids = numbers(name)?;
        let first = *ids.first()?;
        ids.iter().all(|id| *id == first).then_some(first)
    };
    let mut capabilities = 0;
    for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        capabilities |= u64::from_str_radix(field(name)?.trim(), 16).ok()?;
    }
    Some(Attestation {
        uid: one("Uid")?,
        gid: one("Gid")?,
        groups: numbers("Groups")?,
        no_new_privs: one("NoNewPrivs")? == 1,
        capabilities,
        sandbox: SandboxKind::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t4 5 \n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000001\nCapEff:\t0000000000000000\n\
        CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000004\nNoNewPrivs:\t1\n";

    #[test]
    fn a_status_is_read_whole_or_not_at_all() {
        let whole = Attestation {
            uid: 7,
            gid: 8,
            groups: vec![4, 5],
            no_new_privs: true,
            capabilities: 5,
            sandbox: SandboxKind::None,
        };
        assert_eq!(parse(STATUS), Some(whole));
        for broken in [
            STATUS.replace("7\t7\t7\t7", "7\t0\t7\t7"),
            STATUS.replace("8\t8\t8\t8", "8\t8\t0\t8"),
            STATUS.replace("Groups", "Troops"),
            STATUS.replace("CapAmb", "CapAny"),
            STATUS.replace("NoNewPrivs:\t1\n", ""),
            String::new(),
        ] {
            assert_eq!(parse(&broken), None, "{broken}");
        }
    }
}
