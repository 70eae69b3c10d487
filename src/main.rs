//! The `homeostat` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: a shim must stay one thread.
    if let Some(code) = homeostat::shim::main(std::env::args_os()) {
        return code;
    }
    homeostat::cli::run(std::env::args_os())
}
