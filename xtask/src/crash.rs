//! `cargo xtask crash [--all] [--seed N]`: the daemon dies at its crash points, at failing writes
//! and at any moment, and loses and doubles nothing. Prints the seed, and what it came to.

use anyhow::{Context as _, bail};

use crate::tool;

/// The seed without `--seed`.
const SEED: u64 = 1;

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (is_all, seed) = parse(arguments)?;
    println!("seed {seed}");
    let mut line = vec!["test", "--features", "test-support", "--test", "it", "--"];
    line.extend(["--nocapture", "--test-threads", "2", "crash::"]);
    if is_all {
        line.push("--include-ignored");
    }
    let said = tool::cargo_output(&line, &[("CRASH_SEED", &seed.to_string())])?;
    println!("\nseed {seed}, passed:");
    // A line can begin behind the name of another test.
    let results = said
        .lines()
        .filter_map(|line| Some(&line[line.find("crash ")?..]));
    for result in results.chain(said.lines().filter(|line| line.starts_with("test result:"))) {
        println!("  {result}");
    }
    Ok(())
}

fn parse(arguments: &[String]) -> anyhow::Result<(bool, u64)> {
    let (mut is_all, mut seed) = (false, SEED);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--all" => is_all = true,
            "--seed" => {
                let text = arguments.next().context("--seed takes a number")?;
                seed = text.parse().with_context(|| format!("--seed {text}"))?;
            }
            other => bail!("{other:?} is not --all or --seed N"),
        }
    }
    Ok((is_all, seed))
}

#[cfg(test)]
mod tests {
    use super::{SEED, parse};

    #[test]
    fn arguments_are_read_or_refused() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(&words).ok()
        };
        assert_eq!(parse(""), Some((false, SEED)));
        assert_eq!(parse("--seed 7 --all"), Some((true, 7)));
        for wrong in ["--seed", "--seed x", "all"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
