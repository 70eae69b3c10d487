//! What the commands share: the workspace's root, cargo as a child, and a stopwatch.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[expect(
    clippy::disallowed_methods,
    reason = "development tasks are made of other programs"
)]
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Runs `cargo ARGUMENTS` in the root, its output shown as it comes. A non-zero exit is an error
/// that names the command line.
pub(crate) fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<()> {
    let line = format!("cargo {}", arguments.join(" "));
    let status = command("cargo")
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("starting `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// As [`cargo`], and gives what it printed on standard output.
pub(crate) fn cargo_output(
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> anyhow::Result<String> {
    let line = format!("cargo {}", arguments.join(" "));
    let output = command("cargo")
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting `{line}`"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{said}");
    if !output.status.success() {
        bail!("`{line}` ended with {}", output.status);
    }
    Ok(said)
}

/// Whether `PROGRAM ARGUMENTS` can be started and succeeds; prints nothing.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    command(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs `work` and says how long it took on the wall.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = now();
    let result = work();
    (result, started.elapsed())
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures the real time that a stage takes"
)]
fn now() -> Instant {
    Instant::now()
}
