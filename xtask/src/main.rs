//! Development tasks: `cargo xtask ci|tidy|schemas|bless`.

fn main() {}
