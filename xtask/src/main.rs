//! Development tasks: `cargo xtask COMMAND`. One file per command; `COMMANDS` lists them.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a development tool talks to the terminal that started it"
)]

mod bench;
mod bless;
mod ci;
mod crash;
mod schemas;
mod tidy;
mod tool;

use std::process::ExitCode;

/// One development task.
struct Command {
    name: &'static str,
    usage: &'static str,
    help: &'static str,
    /// Gets what follows the name. An error ends the process with exit code 1.
    run: fn(&[String]) -> anyhow::Result<()>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "ci",
        usage: "",
        help: "everything that must hold before a change lands, with the time of each stage",
        run: ci::run,
    },
    Command {
        name: "tidy",
        usage: "",
        help: "imports between modules, banned names, sizes, coverage of closed enums",
        run: tidy::run,
    },
    Command {
        name: "schemas",
        usage: "[--check]",
        help: "write schemas/ anew, or only compare",
        run: schemas::run,
    },
    Command {
        name: "crash",
        usage: "[--all] [--seed N]",
        help: "make the daemon die everywhere; a sample of it, or all for some minutes",
        run: crash::run,
    },
    Command {
        name: "bench",
        usage: "gateway [--rounds N]",
        help: "measure in release, beside a baseline of the same run; JSON in target/bench/",
        run: bench::run,
    },
    Command {
        name: "bless",
        usage: "[FILTER]",
        help: "run the tests and take what they print as the new goldens; review the diff",
        run: bless::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chosen = arguments
        .first()
        .and_then(|name| COMMANDS.iter().find(|command| command.name == name));
    let Some(command) = chosen else {
        eprintln!("usage: cargo xtask COMMAND\n");
        for command in COMMANDS {
            let form = format!("{} {}", command.name, command.usage);
            eprintln!("  {form:<26}{}", command.help);
        }
        return ExitCode::from(2);
    };
    match (command.run)(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {}: {error:#}", command.name);
            ExitCode::FAILURE
        }
    }
}
