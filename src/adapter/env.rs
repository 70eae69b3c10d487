//! The environment of a run: an allowlist, and who may set what.
//!
//! Nothing of the daemon's own environment is in it. Later layers win: a fixed base, git's
//! identity, what the dispatch asks for, what the Adapter sets, why the run was woken.

use std::collections::BTreeMap;

use super::{LaunchError, LaunchSpec};

/// Names that begin so are the daemon's to give.
const OWN_PREFIX: &str = "HOMEOSTAT_";

/// Prefixes of variables that make a loader, shell or git run code or redirect it.
const REFUSED_PREFIXES: &[&str] = &[
    "LD_",
    "DYLD_",
    "BASH_FUNC_",
    "GIT_CONFIG",
    "LISTEN_",
    "DBUS_",
];

/// Variables that do the same, that hand over a service of the operator's session, or that say
/// where the run lives.
const REFUSED: &[&str] = &[
    "BASH_ENV",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "DOCKER_HOST",
    "ENV",
    "GIT_ASKPASS",
    "GIT_DIR",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_TEMPLATE_DIR",
    "GIT_WORK_TREE",
    "GLIBC_TUNABLES",
    "HOME",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "KUBECONFIG",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NOTIFY_SOCKET",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PERL_MM_OPT",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONBREAKPOINT",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYOPT",
    "RUSTC_WRAPPER",
    "SSH_ASKPASS",
    "SSH_AUTH_SOCK",
    "TMPDIR",
    "USER",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
];

/// Puts a run's environment together. `adapter_env` is the Adapter's own, written by the operator
/// for exactly this program, so that only the daemon's names are closed to it; a dispatch is held
/// to the list above as well.
pub(super) fn build(
    spec: &LaunchSpec<'_>,
    adapter_env: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, LaunchError> {
    for name in spec.caller_env.keys() {
        refuse_own(name)?;
        if is_refused(name) {
            return Err(LaunchError::VariableRefused { name: name.clone() });
        }
    }
    for name in adapter_env.keys() {
        refuse_own(name)?;
    }
    let base = [
        ("PATH", spec.search_path),
        ("HOME", spec.home),
        ("USER", spec.user),
        ("LOGNAME", spec.user),
        ("TMPDIR", spec.tmp),
        ("TZ", spec.time_zone),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("GIT_TERMINAL_PROMPT", "0"),
    ];
    let mut env: BTreeMap<_, _> = base
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for layer in [spec.git_env, spec.caller_env, adapter_env, spec.wake_env] {
        env.extend(layer.clone());
    }
    for (name, value) in &env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let what = format!("the variable {name:?}");
            return Err(LaunchError::NotRepresentable { what });
        }
    }
    Ok(env)
}

fn refuse_own(name: &str) -> Result<(), LaunchError> {
    if starts_with(name, OWN_PREFIX) {
        return Err(LaunchError::VariableReserved {
            name: name.to_owned(),
        });
    }
    Ok(())
}

/// Whether a dispatch may not set this variable, in any spelling.
fn is_refused(name: &str) -> bool {
    let is_runner =
        starts_with(name, "CARGO_TARGET_") && name.to_ascii_uppercase().ends_with("_RUNNER");
    is_runner
        || REFUSED_PREFIXES
            .iter()
            .any(|prefix| starts_with(name, prefix))
        || REFUSED
            .iter()
            .any(|refused| refused.eq_ignore_ascii_case(name))
}

fn starts_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
