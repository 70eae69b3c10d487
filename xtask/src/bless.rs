//! `cargo xtask bless [FILTER]`: runs the tests and lets each golden, `schemas/` among them, take
//! what came out. What changed is in the diff, to be reviewed like code.

use anyhow::bail;

use crate::tool;

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let mut line = vec![
        "test",
        "--package",
        "homeostat",
        "--features",
        "test-support",
    ];
    line.extend(["--lib", "--test", "it"]);
    match arguments {
        [] => {}
        [filter] => line.push(filter),
        _ => bail!("takes at most one filter"),
    }
    tool::cargo(&line, &[("SNAPSHOTS", "overwrite")])
}
