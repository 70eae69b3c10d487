//! `cargo xtask schemas [--check]`: the JSON Schemas of `schemas/`, generated from the decoder's
//! own structs. The generator is a golden test of the program, so a plain test run notices a stale
//! schema too; this command runs that one test.

use anyhow::{bail, ensure};

use crate::tool;

/// The test that compares `schemas/` with what the structs say.
const TEST: &str = "schemas::are_what_the_structs_say";

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [] => golden("overwrite"),
        [only] if only == "--check" => golden("verify"),
        _ => bail!("takes nothing or --check"),
    }
}

fn golden(action: &str) -> anyhow::Result<()> {
    let line = [
        "test",
        "--features",
        "test-support",
        "--test",
        "it",
        "--",
        "--exact",
        TEST,
    ];
    let said = tool::cargo_output(&line, &[("SNAPSHOTS", action)])?;
    // Without a match the test program is content too.
    ensure!(
        said.contains("1 passed"),
        "no test `{TEST}` ran: tell xtask its new name"
    );
    Ok(())
}
