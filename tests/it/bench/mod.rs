//! Figures for `cargo xtask bench`: each beside its named baseline from the same run. A bench fails
//! when what it measures goes wrong, never because it was slow: how fast it has to be is a goal,
//! and machines differ. The result goes to standard output, in lines that begin with `bench `, and
//! as JSON into the file that `BENCH_OUT` names.

mod gateway;

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

/// How often a thing is measured.
#[expect(
    clippy::disallowed_methods,
    reason = "a bench has no arguments of its own"
)]
fn rounds() -> usize {
    let given = std::env::var("BENCH_ROUNDS");
    given.map_or(500, |text| text.parse().expect("BENCH_ROUNDS is a number"))
}

/// Hands the result on.
#[expect(
    clippy::disallowed_methods,
    reason = "a bench has no arguments of its own"
)]
fn report(result: &Value) {
    if let Ok(path) = std::env::var("BENCH_OUT") {
        fs::write(path, format!("{result:#}\n")).unwrap();
    }
}

/// Times of one thing, shortest first.
#[derive(Debug)]
struct Times(Vec<Duration>);

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        assert!(!times.is_empty());
        times.sort_unstable();
        Self(times)
    }

    /// The time that this share, in percent, is not above.
    fn percentile(&self, share: usize) -> f64 {
        let rank = (self.0.len() * share).div_ceil(100).max(1) - 1;
        self.0[rank].as_secs_f64() * 1_000.0
    }

    /// p50 and p95, in milliseconds.
    fn percentiles(&self) -> [(&'static str, f64); 2] {
        [("p50", self.percentile(50)), ("p95", self.percentile(95))]
    }
}

/// Prints a figure beside its baseline, and gives it as JSON.
fn compare(what: &str, baseline: &Times, measured: &Times) -> Value {
    let mut result = serde_json::Map::new();
    for ((name, base), (_, own)) in baseline
        .percentiles()
        .into_iter()
        .zip(measured.percentiles())
    {
        let (added, ratio) = (own - base, own / base);
        println!(
            "bench {what} {name}: {base:.3} ms direct, {own:.3} ms through the gateway, \
             {added:+.3} ms, ×{ratio:.2}"
        );
        let figure =
            json!({"baselineMs": base, "measuredMs": own, "addedMs": added, "ratio": ratio});
        result.insert(name.to_owned(), figure);
    }
    result.into()
}

#[test]
fn a_percentile_is_a_time_that_was_measured() {
    let times = |count: u64| Times::of((1..=count).rev().map(Duration::from_millis).collect());
    for (count, share, expected) in [
        (1, 50, 1.0),
        (1, 95, 1.0),
        (4, 50, 2.0),
        (100, 95, 95.0),
        (101, 95, 96.0),
    ] {
        assert_eq!(
            times(count).percentile(share),
            expected,
            "{share} of {count}"
        );
    }
}
