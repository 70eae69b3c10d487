//! The `homeostat` program.

fn main() {}
