//! `cargo xtask schemas [--check]`: the JSON Schemas of `schemas/`, generated from the decoder's
//! own structs. The generator is a golden test of the program, so plain `cargo test` notices a
//! stale schema too; this command runs that one test.

use anyhow::bail;

use crate::tool;

/// The test that compares `schemas/` with what the structs say.
const TEST: &str = "schemas::";

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [] => golden(&[("SNAPSHOTS", "overwrite")]),
        [only] if only == "--check" => golden(&[("SNAPSHOTS", "verify")]),
        _ => bail!("takes nothing or --check"),
    }
}

fn golden(environment: &[(&str, &str)]) -> anyhow::Result<()> {
    tool::cargo(
        &[
            "test",
            "--quiet",
            "--features",
            "test-support",
            "--test",
            "it",
            TEST,
        ],
        environment,
    )
}
