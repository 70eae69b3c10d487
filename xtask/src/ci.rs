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
    /// Left out when the stage `build` failed.
    needs_build: bool,
    run: fn() -> anyhow::Result<()>,
}

const STAGES: &[Stage] = &[
    Stage {
        name: "fmt",
        needs_build: false,
        run: fmt,
    },
    Stage {
        name: "tidy",
        needs_build: false,
        run: || tidy::run(&[]),
    },
    Stage {
        name: "clippy",
        needs_build: false,
        run: clippy,
    },
    Stage {
        name: "doc",
        needs_build: false,
        run: doc,
    },
    Stage {
        name: "build",
        needs_build: false,
        run: build,
    },
    Stage {
        name: "schemas",
        needs_build: true,
        run: || schemas::run(&["--check".to_owned()]),
    },
    Stage {
        name: "doctest",
        needs_build: true,
        run: doctest,
    },
    Stage {
        name: "test",
        needs_build: true,
        run: test,
    },
];

/// How a stage ended.
enum Outcome {
    Passed,
    Failed(anyhow::Error),
    LeftOut,
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    if !arguments.is_empty() {
        bail!("takes no arguments");
    }
    let mut results: Vec<(&'static str, Outcome, Duration)> = Vec::new();
    let mut built = true;
    for stage in STAGES {
        if stage.needs_build && !built {
            results.push((stage.name, Outcome::LeftOut, Duration::ZERO));
            continue;
        }
        println!("\n==> {}", stage.name);
        let (result, took) = tool::timed(stage.run);
        let outcome = match result {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(error),
        };
        println!("<== {} {:.1} s", stage.name, took.as_secs_f64());
        built &= stage.name != "build" || matches!(outcome, Outcome::Passed);
        results.push((stage.name, outcome, took));
    }
    summary(&results)
}

/// Prints the table of stages and what the host lacked; an error when a stage failed.
fn summary(results: &[(&'static str, Outcome, Duration)]) -> anyhow::Result<()> {
    println!("\n==> summary");
    let mut failed = Vec::new();
    for (name, outcome, took) in results {
        let took = took.as_secs_f64();
        match outcome {
            Outcome::Passed => println!("  {name:<8} {took:>7.1} s  passed"),
            Outcome::Failed(error) => {
                println!("  {name:<8} {took:>7.1} s  FAILED: {error:#}");
                failed.push(*name);
            }
            Outcome::LeftOut => println!("  {name:<8}        -    left out: build failed"),
        }
    }
    let total: Duration = results.iter().map(|(_, _, took)| *took).sum();
    println!("  {:<8} {:>7.1} s", "total", total.as_secs_f64());
    if failed.is_empty() {
        println!("ci: all {} stages passed", results.len());
        return Ok(());
    }
    bail!("failed: {}", failed.join(", "))
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
    tool::cargo(&line, &[("RUSTDOCFLAGS", "--deny warnings")])
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
    use super::skip_lines;

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
