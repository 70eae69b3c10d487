//! What an agent is, has and gets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use homeostat::model::process::Exit;
use homeostat::process::control::{
    self, INPUT_BYTES_MAX, Input, InputRefusal, InputRefused, Order, Report, Stage,
};
use homeostat::process::deadline::{Deadline, poll_until};
use homeostat::process::{Presence, StopTarget, is_alive, sweep};
use homeostat::sandbox::{LaunchError, Program, SandboxKind, none};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use super::rig::{GRACE, LONG, Run, identity, next_report, script, shim_binary, signal};

#[test]
fn the_agent_is_the_run_user_and_nothing_more() {
    let text = "id -u; id -g; umask; cut -d ' ' -f 5 /proc/$$/stat; echo $$; \
                grep -E '^(Groups|Cap(Inh|Prm|Eff|Amb)|NoNewPrivs|Sig(Blk|Ign))' /proc/self/status";
    let setup = script(text);
    let started = none::start(shim_binary()).unwrap();
    let target = StopTarget {
        identity: Some(started.identity().clone()),
        run: setup.plan.run,
        cgroup: None,
    };
    let attested = started.prepare(&setup.plan).unwrap();
    let attestation = attested.attestation().clone();
    let running = Some(attested.launch(setup.program).unwrap());
    let (output, exited) = Run { running, target }.finish();

    let bits = |hex: &str| u64::from_str_radix(hex.trim(), 16).unwrap();
    let root = rustix::process::geteuid().is_root();
    assert_eq!(attestation.uid, identity().uid());
    assert_eq!(attestation.gid, identity().gid());
    assert_eq!(attestation.sandbox, SandboxKind::None);
    assert!(attestation.no_new_privs && attestation.capabilities == 0);
    assert_eq!(exited.exit.code, Some(0), "{output}");

    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[0], identity().uid().to_string());
    assert_eq!(lines[1], identity().gid().to_string());
    assert_eq!(lines[2], "0022");
    assert_eq!(lines[3], lines[4], "it leads its own process group");
    assert_eq!(lines.len(), 5 + 8, "{output}");
    for line in &lines[5..] {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{output}"));
        match name {
            "Groups" if root => assert_eq!(value.trim(), "", "{line}"),
            "Groups" => {}
            "NoNewPrivs" => assert_eq!(value.trim(), "1", "{line}"),
            // All but the two that the C library keeps to itself and nobody can reset.
            "SigIgn" => assert_eq!(bits(value) & !(0b11 << 31), 0, "{line}"),
            _ => assert_eq!(bits(value), 0, "{line}"),
        }
    }
    if !root {
        eprintln!(
            "SKIP the_agent_is_the_run_user_and_nothing_more: not root, so that the user is not changed"
        );
    }
}

#[test]
fn the_environment_is_exactly_what_was_given() {
    let mut setup = script("");
    setup.program.argv = vec!["/usr/bin/env".to_owned(), "-0".to_owned()];
    setup
        .program
        .env
        .insert("ODD".to_owned(), "a=b\nc 'd' \u{1f980}".to_owned());
    setup.program.env.insert("EMPTY".to_owned(), String::new());
    let expected = setup.program.env.clone();
    let (output, exited) = setup.launch().finish();
    let got: BTreeMap<_, _> = output
        .split_terminator('\0')
        .map(|entry| entry.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert_eq!((got, exited.exit.code), (expected, Some(0)));
}

#[test]
fn no_descriptor_strays_into_the_agent() {
    // One that nobody has marked to be closed, as a careless library would leave.
    let stray: OwnedFd = File::open("/").unwrap().into();
    rustix::io::fcntl_setfd(&stray, rustix::io::FdFlags::empty()).unwrap();
    let (output, _) = script("exec ls -l /proc/self/fd").launch().finish();
    let mut links: Vec<_> = output
        .lines()
        .filter_map(|line| line.split_once(" -> "))
        .map(|(left, target)| (left.rsplit(' ').next().unwrap_or_default(), target))
        .collect();
    // `ls` itself has opened the directory.
    links.retain(|(_, target)| !(target.starts_with("/proc/") && target.ends_with("/fd")));
    let numbers: Vec<_> = links.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, ["0", "1", "2"], "{output}");
    assert!(
        links.iter().all(|(_, target)| target.starts_with("pipe:")),
        "{output}"
    );
}

#[test]
fn the_agent_cannot_look_into_its_shim() {
    let text = "cat /proc/$PPID/environ; ls /proc/$PPID/fd/; cat /proc/$PPID/mem; echo over";
    let (output, _) = script(text).launch().finish();
    assert_eq!(output, "over\n");
}

#[test]
fn what_an_agent_leaves_behind_is_killed_before_its_end_is_reported() {
    // Twice forked, in a session of its own, deaf to TERM.
    let text = "setsid sh -c \"trap '' TERM; sleep 1000 & echo \\$!\"; exit 7";
    let run = script(text).launch();
    let target = run.target.clone();
    let (output, exited) = run.finish();
    assert_eq!(
        (exited.exit, exited.left),
        (Exit::with_code(7), 0),
        "{output}"
    );
    assert_eq!(exited.leftovers_killed, 1);
    assert_eq!(sweep(target.run).unwrap(), []);
    assert!(
        target
            .identity
            .is_some_and(|shim| is_alive(&shim) == Presence::Gone)
    );
}

#[test]
fn a_long_prompt_reaches_who_reads_and_blocks_nobody() {
    let prompt = "0123456789abcde\n".repeat(1 << 16);
    let cases = [
        ("wc -c", "1048576\n", Some(0)),
        ("head -c 16", "0123456789abcde\n", Some(0)),
        ("exit 5", "", Some(5)),
    ];
    for (text, output, code) in cases {
        let mut setup = script(text);
        setup.program.stdin.clone_from(&prompt);
        let (got, exited) = setup.launch().finish();
        assert_eq!(
            (got.trim_start(), exited.exit.code),
            (output, code),
            "{text}"
        );
    }
    let mut setup = script("echo ready; exec sleep 1000");
    setup.program.stdin = prompt;
    let mut run = setup.launch();
    assert_eq!(run.line(), "ready");
    assert!(
        run.stop(GRACE).unwrap().killed.is_empty(),
        "the shim still listens"
    );
}

#[test]
fn a_program_that_cannot_be_executed_is_said_so() {
    let change = |change: fn(&mut Program)| {
        let mut setup = script("");
        change(&mut setup.program);
        setup
    };
    let missing = |program: &mut Program| program.argv = vec!["/no/such/agent".to_owned()];
    let cases = [
        (
            change(missing),
            Stage::Exec,
            Some(Errno::NOENT.raw_os_error()),
        ),
        (
            change(|program| program.argv = vec!["/".to_owned()]),
            Stage::Exec,
            Some(Errno::ACCESS.raw_os_error()),
        ),
        (change(|program| program.argv = vec![]), Stage::Exec, None),
        (
            change(|program| program.cwd = PathBuf::from("/no/such/place")),
            Stage::WorkingDirectory,
            Some(Errno::NOENT.raw_os_error()),
        ),
        (
            change(|program| {
                program.env.insert("A=B".to_owned(), String::new());
            }),
            Stage::Exec,
            None,
        ),
    ];
    for (setup, stage, errno) in cases {
        match setup.try_launch() {
            Err(LaunchError::Refused(failed)) => {
                assert_eq!((failed.stage, failed.errno), (stage, errno), "{failed}");
            }
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("launched"),
        }
    }
}

fn tell(run: &mut Run, order: &Order) {
    let line = control::encode(order).unwrap();
    let control = &mut run.running().control;
    let mut rest = line.as_slice();
    while !rest.is_empty() {
        let mut fds = [PollFd::new(control, PollFlags::OUT)];
        assert!(poll_until(&mut fds, Some(Deadline::after(LONG))).unwrap());
        match control.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
}

fn input(text: impl Into<String>) -> Order {
    Order::Input(Input { text: text.into() })
}

fn refused(run: &mut Run) -> InputRefused {
    let running = run.running();
    match next_report(&mut running.control, &mut running.decoder) {
        Report::InputRefused(refused) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn input_goes_on_until_it_is_closed() {
    // Its input is closed before it ends: it lives on until its word is read.
    let mut setup = script(
        "while read -r line; do echo \"got $line\"; done; trap 'echo over; exit 0' TERM; echo closed; \
         while :; do sleep 0.01; done",
    );
    setup.program.stdin = "one\n".to_owned();
    setup.program.keeps_stdin = true;
    let mut run = setup.launch();
    assert_eq!(run.line(), "got one");
    tell(&mut run, &input("two\nthr"));
    assert_eq!(run.line(), "got two");
    tell(&mut run, &input("ee\n"));
    tell(&mut run, &Order::CloseInput);
    assert_eq!(run.line(), "got three");
    assert_eq!(run.line(), "closed");
    tell(&mut run, &input("late\n"));
    let closed = InputRefused {
        reason: InputRefusal::Closed,
        inputs: 1,
    };
    assert_eq!(refused(&mut run), closed);
    signal(run.shim(), Signal::TERM);
    let (output, exited) = run.finish();
    assert_eq!((output.as_str(), exited.exit.code), ("over\n", Some(0)));
}

#[test]
fn input_that_nobody_reads_fills_a_bounded_buffer_and_blocks_nobody() {
    let mut setup = script("echo ready; trap 'wc -c; exit 3' TERM; while :; do sleep 0.01; done");
    setup.program.keeps_stdin = true;
    let mut run = setup.launch();
    assert_eq!(run.line(), "ready");
    let megabyte = "x".repeat(1 << 20);
    // The pipe itself holds less than one of them: two are too many.
    for _ in 0..(INPUT_BYTES_MAX >> 20) + 2 {
        tell(&mut run, &input(megabyte.clone()));
    }
    let mut inputs = 0;
    while inputs < 2 {
        let full = refused(&mut run);
        assert_eq!(full.reason, InputRefusal::Full);
        inputs += full.inputs;
    }
    assert_eq!(inputs, 2);
    // What fits is still taken, in order, and so is the end.
    tell(&mut run, &input("y"));
    tell(&mut run, &Order::CloseInput);
    signal(run.shim(), Signal::TERM);
    let (output, exited) = run.finish();
    assert_eq!(exited.exit.code, Some(3), "the shim still listens");
    let bytes: usize = output.trim().parse().unwrap();
    assert_eq!(bytes, INPUT_BYTES_MAX + 1, "whole inputs alone");
}

#[test]
fn an_agent_that_closes_its_input_is_given_none() {
    let mut setup = script("exec 0<&-; echo closed; exec sleep 1000");
    setup.program.keeps_stdin = true;
    let mut run = setup.launch();
    assert_eq!(run.line(), "closed");
    // The first is how the shim finds out.
    tell(&mut run, &input("x"));
    tell(&mut run, &input("y"));
    assert_eq!(refused(&mut run).reason, InputRefusal::Closed);
    assert!(run.stop(GRACE).unwrap().killed.is_empty());
}

#[test]
fn what_an_agent_was_given_and_does_not_live_to_read_is_told() {
    let mut setup = script("echo ready; exec sleep 1000");
    setup.program.keeps_stdin = true;
    let mut run = setup.launch();
    assert_eq!(run.line(), "ready");
    // The pipe holds the first and a part of the second.
    for text in ["x".to_owned(), "y".repeat(1 << 20), "z".to_owned()] {
        tell(&mut run, &input(text));
    }
    signal(run.shim(), Signal::TERM);
    let unread = InputRefused {
        reason: InputRefusal::Closed,
        inputs: 2,
    };
    assert_eq!(refused(&mut run), unread);
    assert_eq!(run.finish().1.inputs, 3);
}
