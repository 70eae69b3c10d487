//! `cargo xtask bench FIGURE [--rounds N]`: measures in release. Prints each figure beside its
//! baseline of the same run, and writes it as JSON to `target/bench/FIGURE.json`.

use anyhow::{Context as _, bail};

use crate::tool;

/// What can be measured. Each is a module of `tests/it/bench`.
const FIGURES: &[&str] = &["gateway"];

/// The rounds without `--rounds`.
const ROUNDS: usize = 1_000;

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (figure, rounds) = parse(arguments)?;
    let folder = tool::root().join("target/bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let out = folder.join(format!("{figure}.json"));
    let out = out.to_str().context("the target directory is no text")?;
    let filter = format!("bench::{figure}::");
    let mut line = vec!["test", "--release", "--features", "test-support"];
    line.extend(["--test", "it", "--", "--nocapture", "--test-threads", "1"]);
    line.extend(["--ignored", &filter]);
    let environment = [
        ("BENCH_ROUNDS", rounds.to_string()),
        ("BENCH_OUT", out.to_owned()),
    ];
    let environment: Vec<_> = environment
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    tool::cargo_output(&line, &environment)?;
    println!("\n{rounds} rounds; target/bench/{figure}.json has it as JSON");
    Ok(())
}

fn parse(arguments: &[String]) -> anyhow::Result<(&'static str, usize)> {
    let (mut figure, mut rounds) = (None, ROUNDS);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--rounds" {
            let text = arguments.next().context("--rounds takes a number")?;
            rounds = text.parse().with_context(|| format!("--rounds {text}"))?;
            continue;
        }
        let known = FIGURES.iter().find(|known| *known == argument);
        let known = known.with_context(|| format!("{argument:?} is none of {FIGURES:?}"))?;
        if figure.replace(*known).is_some() {
            bail!("takes one figure at a time");
        }
    }
    if rounds == 0 {
        bail!("--rounds takes a number from 1 on");
    }
    let figure = figure.with_context(|| format!("name one of {FIGURES:?}"))?;
    Ok((figure, rounds))
}

#[cfg(test)]
mod tests {
    use super::{ROUNDS, parse};

    #[test]
    fn arguments_are_read_or_refused() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(&words).ok()
        };
        assert_eq!(parse("gateway"), Some(("gateway", ROUNDS)));
        assert_eq!(parse("--rounds 7 gateway"), Some(("gateway", 7)));
        for wrong in [
            "",
            "moon",
            "gateway gateway",
            "gateway --rounds",
            "gateway --rounds 0",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
