//! `cargo xtask ci`: everything that must hold before a change lands. One dev profile, nothing
//! installed, no network beyond what cargo needs for its dependencies. All stages run even after
//! one failed, so that one run tells everything; only what needs a failed build is left out.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;

use crate::{schemas, tidy, tool};

/// One step, in the order of `STAGES`.
struct Stage {
    name: &'static str,
    needs: Needs,
    run: fn() -> anyhow::Result<()>,
}

/// Without what a stage is left out.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    /// A cargo subcommand that not every toolchain comes with.
    Cargo(&'static str),
    /// That the stage `build` passed.
    Build,
}

const fn stage(name: &'static str, needs: Needs, run: fn() -> anyhow::Result<()>) -> Stage {
    Stage { name, needs, run }
}

const BUILD: &str = "build";

#[rustfmt::skip]
const STAGES: &[Stage] = &[
    stage("fmt", Needs::Cargo("fmt"), fmt),
    stage("tidy", Needs::Nothing, || tidy::run(&[])),
    stage("clippy", Needs::Cargo("clippy"), clippy),
    stage("doc", Needs::Nothing, doc),
    stage(BUILD, Needs::Nothing, build),
    stage("schemas", Needs::Build, || schemas::run(&["--check".to_owned()])),
    stage("doctest", Needs::Build, doctest),
    stage("test", Needs::Build, test),
];

/// How a stage ended.
enum Outcome {
    Passed,
    Failed(anyhow::Error),
    /// With the reason.
    LeftOut(String),
}

/// A stage's name, how it ended, and how long it took on the wall.
type Row = (&'static str, Outcome, Duration);

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    if !arguments.is_empty() {
        bail!("takes no arguments");
    }
    let mut rows: Vec<Row> = Vec::new();
    for stage in STAGES {
        let row = match lack(stage.needs, &rows) {
            Some(reason) => (stage.name, Outcome::LeftOut(reason), Duration::ZERO),
            None => perform(stage),
        };
        rows.push(row);
    }
    summary(&rows)
}

/// Why a stage with these needs can't run, given the stages before it.
fn lack(needs: Needs, before: &[Row]) -> Option<String> {
    match needs {
        Needs::Nothing => None,
        Needs::Cargo(name) => (!tool::succeeds("cargo", &[name, "--version"]))
            .then(|| format!("the toolchain has no `cargo {name}`")),
        Needs::Build => before
            .iter()
            .any(|(name, outcome, _)| *name == BUILD && !matches!(outcome, Outcome::Passed))
            .then(|| "the build failed".to_owned()),
    }
}

fn perform(stage: &Stage) -> Row {
    println!("\n==> {}", stage.name);
    let (result, took) = tool::timed(stage.run);
    println!("<== {} {:.1} s", stage.name, took.as_secs_f64());
    let outcome = match result {
        Ok(()) => Outcome::Passed,
        Err(error) => Outcome::Failed(error),
    };
    (stage.name, outcome, took)
}

/// Prints the table of stages; an error when one failed.
fn summary(rows: &[Row]) -> anyhow::Result<()> {
    println!("\n==> summary");
    let (mut failed, mut left_out) = (Vec::new(), 0);
    for (name, outcome, took) in rows {
        let took = took.as_secs_f64();
        match outcome {
            Outcome::Passed => println!("  {name:<8} {took:>7.1} s  passed"),
            Outcome::Failed(error) => {
                println!("  {name:<8} {took:>7.1} s  FAILED: {error:#}");
                failed.push(*name);
            }
            Outcome::LeftOut(reason) => {
                println!("  {name:<8}       -    LEFT OUT: {reason}");
                left_out += 1;
            }
        }
    }
    let total: Duration = rows.iter().map(|(_, _, took)| *took).sum();
    println!("  {:<8} {:>7.1} s", "total", total.as_secs_f64());
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    println!(
        "ci: {} stages passed, {left_out} left out",
        rows.len() - left_out
    );
    Ok(())
}

fn fmt() -> anyhow::Result<()> {
    tool::cargo(&["fmt", "--all", "--check"], &[])
}

fn clippy() -> anyhow::Result<()> {
    let scope = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        "test-support",
    ];
    tool::cargo(&[&scope[..], &["--", "--deny", "warnings"]].concat(), &[])
}

/// The links between doc comments, private ones too, are only checked here.
fn doc() -> anyhow::Result<()> {
    let line = [
        "doc",
        "--no-deps",
        "--document-private-items",
        "--lib",
        "--features",
        "test-support",
    ];
    // The doc of a module guides through its private parts too.
    let flags = "--deny warnings --allow rustdoc::private_intra_doc_links";
    tool::cargo(&line, &[("RUSTDOCFLAGS", flags)])
}

fn build() -> anyhow::Result<()> {
    tool::cargo(
        &[
            "test",
            "--no-run",
            "--workspace",
            "--features",
            "test-support",
        ],
        &[],
    )
}

fn doctest() -> anyhow::Result<()> {
    tool::cargo(
        &[
            "test",
            "--doc",
            "--package",
            "homeostat",
            "--features",
            "test-support",
        ],
        &[],
    )
}

/// The tests by nextest, or by plain `cargo test` where that is not installed. What a test left
/// out for want of a tool or a privilege is listed afterwards.
fn test() -> anyhow::Result<()> {
    let scope = ["--workspace", "--features", "test-support"];
    if !tool::succeeds("cargo", &["nextest", "--version"]) {
        println!("cargo-nextest is not installed: running `cargo test` instead");
        let line = [
            &["test"],
            &scope[..],
            &["--tests", "--no-fail-fast", "--", "--show-output"],
        ];
        return tool::cargo(&line.concat(), &[]);
    }
    let report = tool::root().join("target/nextest/ci/junit.xml");
    // A report of an earlier run would speak for this one if nextest could not start.
    if report.exists() {
        std::fs::remove_file(&report)?;
    }
    let result = tool::cargo(
        &[&["nextest", "run", "--profile", "ci"], &scope[..]].concat(),
        &[],
    );
    let skips = skips(&report);
    if !skips.is_empty() {
        println!("not tested on this host:");
    }
    for skip in skips {
        println!("  {skip}");
    }
    result
}

/// The lines `SKIP <test>: <reason>` in a report of nextest, sorted, each once.
fn skips(report: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    skip_lines(&text)
}

fn skip_lines(report: &str) -> BTreeSet<String> {
    let lines = report.lines().filter_map(|line| {
        let said = &line[line.find("SKIP ")?..];
        let end = said.find("</system-").unwrap_or(said.len());
        Some(unescaped(&said[..end]))
    });
    lines.collect()
}

/// Text out of XML.
fn unescaped(text: &str) -> String {
    const ENTITIES: &[(&str, &str)] = &[
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"), // last: what it gives is no entity
    ];
    ENTITIES
        .iter()
        .fold(text.to_owned(), |text, (entity, plain)| {
            text.replace(entity, plain)
        })
}

#[cfg(test)]
mod tests {
    use super::{Duration, Needs, Outcome, lack, skip_lines, summary};

    #[test]
    fn a_failure_fails_the_whole_and_a_stage_left_out_does_not() {
        let passed = ("fmt", Outcome::Passed, Duration::ZERO);
        let left_out = ("test", Outcome::LeftOut("no".to_owned()), Duration::ZERO);
        let failed = (
            "build",
            Outcome::Failed(anyhow::anyhow!("no")),
            Duration::ZERO,
        );
        assert!(lack(Needs::Build, &[]).is_none());
        let mut rows = vec![passed, left_out];
        assert!(summary(&rows).is_ok());
        rows.push(failed);
        let error = summary(&rows).expect_err("a stage failed");
        assert_eq!(error.to_string(), "failed: build");
        assert!(lack(Needs::Build, &rows).is_some());
        assert!(lack(Needs::Cargo("no-such-subcommand"), &[]).is_some());
    }

    #[test]
    fn a_report_gives_each_skip_once() {
        let report = "<testcase><system-err>SKIP volume::grow: no loop devices\nmore\n\
                      SKIP a::b: needs root &amp;lt; xfs</system-err>\n\
                      <system-err>SKIP a::b: needs root &amp;lt; xfs</system-err>\n<x/>";
        let found: Vec<String> = skip_lines(report).into_iter().collect();
        assert_eq!(
            found,
            [
                "SKIP a::b: needs root &lt; xfs",
                "SKIP volume::grow: no loop devices"
            ]
        );
        assert!(skip_lines("<testcase/>").is_empty());
    }
}
