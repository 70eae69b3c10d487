//! Shim, sandbox port and confirmed stop, with real processes. As root they really change user; as
//! anybody else they run as that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use homeostat::model::id::RunId;
use homeostat::model::process::ProcessIdentity;
use homeostat::process::control::{
    self, ControlError, Decoder, Exited, Failed, Launch, Order, Prepare, Report, Stage, VERSION,
};
use homeostat::process::deadline::{Deadline, poll_until};
use homeostat::process::table::RUN_MARK;
use homeostat::process::{
    Pidfd, Presence, StopError, StopReport, StopTarget, cgroup, descendants, identify, is_alive,
    stop, sweep,
};
use homeostat::sandbox::{
    LaunchError, LaunchPlan, Program, RunIdentity, Running, SandboxKind, none, probe,
};
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_millis(200);

fn shim_binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_homeostat"))
}

fn identity() -> RunIdentity {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    RunIdentity::resolve(uid.as_raw(), gid.as_raw(), None).unwrap()
}

/// A run id that no other test has, in this process or beside it.
fn fresh_run() -> RunId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let serial = NEXT.fetch_add(1, Ordering::Relaxed);
    let own = identify(std::process::id()).unwrap().expect("we exist");
    RunId::derived(&[&format!("{own:?}"), &serial.to_string()])
}

/// What is launched: a shell script, unless `argv` says otherwise.
struct Setup {
    plan: LaunchPlan,
    program: Program,
}

fn script(text: &str) -> Setup {
    let run = fresh_run();
    Setup {
        plan: LaunchPlan {
            run,
            identity: identity(),
            cgroup: None,
            grace: GRACE,
        },
        program: Program {
            argv: ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
            env: BTreeMap::from([
                ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
                (RUN_MARK.to_owned(), run.to_string()),
            ]),
            cwd: PathBuf::from("/"),
            stdin: String::new(),
        },
    }
}

/// A launched run. Whatever a test leaves of it is stopped when it ends, also by a panic.
struct Run {
    running: Option<Running>,
    target: StopTarget,
}

impl Setup {
    fn launch(self) -> Run {
        self.try_launch().unwrap()
    }

    fn try_launch(self) -> Result<Run, LaunchError> {
        let started = none::start(shim_binary())?;
        let mut run = Run {
            running: None,
            target: StopTarget {
                identity: Some(started.identity().clone()),
                run: self.plan.run,
                cgroup: self.plan.cgroup.clone(),
            },
        };
        let attested = started.prepare(&self.plan)?;
        run.running = Some(attested.launch(self.program)?);
        Ok(run)
    }
}

impl Run {
    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("not let go of")
    }

    /// The next line of the agent's output, without its end.
    fn line(&mut self) -> String {
        let mut out = File::from(self.running().stdout.try_clone().unwrap());
        let mut line = Vec::new();
        let mut byte = [0];
        while wait_and_read(&mut out, &mut byte) == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// A process that the agent's next line names by pid.
    fn named(&mut self) -> ProcessIdentity {
        let line = self.line();
        let pid = line
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("no pid: {line:?}"));
        identify(pid).unwrap().expect("it has just been started")
    }

    /// The rest of the output, and how it all ended.
    fn finish(mut self) -> (String, Exited) {
        let running = self.running();
        let mut out = File::from(running.stdout.try_clone().unwrap());
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match wait_and_read(&mut out, &mut piece) {
                0 => break,
                read => text.extend_from_slice(&piece[..read]),
            }
        }
        let exited = self.exited();
        let status = self.running().shim.reap(LONG).unwrap();
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
        (String::from_utf8(text).unwrap(), exited)
    }

    fn exited(&mut self) -> Exited {
        let running = self.running();
        match next_report(&mut running.control, &mut running.decoder) {
            Report::Exited(exited) => exited,
            other => panic!("not the end: {other:?}"),
        }
    }

    fn stop(&self, grace: Duration) -> Result<StopReport, StopError> {
        stop(&self.target, grace)
    }

    fn shim(&self) -> &ProcessIdentity {
        self.target.identity.as_ref().expect("launched")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let stopped = stop(&self.target, Duration::ZERO);
        if !std::thread::panicking() {
            drop(stopped.expect("what a test leaves can be stopped"));
        }
    }
}

/// Waits until there is something to read, and reads it.
fn wait_and_read(from: &mut (impl Read + AsFd), into: &mut [u8]) -> usize {
    let mut fds = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)];
    let ready = poll_until(&mut fds, Some(Deadline::after(LONG))).unwrap();
    assert!(ready, "nothing to read for {LONG:?}");
    from.read(into).unwrap()
}

fn next_report(control: &mut UnixStream, decoder: &mut Decoder) -> Report {
    let mut piece = [0; 4096];
    loop {
        if let Some(report) = decoder.message().unwrap() {
            return report;
        }
        let read = wait_and_read(control, &mut piece);
        assert_ne!(read, 0, "the shim ended without a report");
        decoder.push(&piece[..read]);
    }
}

/// Waits for the end of a process, and only that.
fn wait_gone(process: &ProcessIdentity) {
    if let Some(handle) = Pidfd::open(process).unwrap() {
        assert!(handle.wait(LONG).unwrap(), "{process} lives on");
    }
    assert_eq!(is_alive(process), Presence::Gone);
}

fn kill(process: &ProcessIdentity) {
    let handle = Pidfd::open(process).unwrap().expect("it runs");
    assert!(handle.signal(Signal::KILL).unwrap());
    assert!(handle.wait(LONG).unwrap());
}

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
    assert_eq!(exited.code, Some(0), "{output}");

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
        eprintln!("SKIP the change of user: not root");
    }
}

#[test]
fn the_environment_is_exactly_what_was_given() {
    let mut setup = script("");
    setup.program.argv = vec!["env".to_owned(), "-0".to_owned()];
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
    assert_eq!((got, exited.code), (expected, Some(0)));
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
    let mut run = script(text).launch();
    let daemon = run.named();
    let shim = run.shim().clone();
    let (_, exited) = run.finish();
    assert_eq!(
        (exited.code, exited.signal, exited.left),
        (Some(7), None, 0)
    );
    assert_eq!(exited.leftovers_killed, 1);
    assert_eq!(is_alive(&daemon), Presence::Gone);
    assert_eq!(is_alive(&shim), Presence::Gone);
}

#[test]
fn an_agent_that_ignores_term_is_killed_after_its_grace() {
    let mut run = script("trap '' TERM; echo ready; while :; do sleep 1; done").launch();
    assert_eq!(run.line(), "ready");
    let report = run.stop(GRACE).unwrap();
    assert!(report.was_running);
    assert!(report.killed.is_empty(), "the shim did it: {report:?}");
    let exited = run.exited();
    assert_eq!(
        (exited.code, exited.signal, exited.left),
        (None, Some(9), 0)
    );
}

#[test]
fn an_agent_that_heeds_term_ends_in_its_own_way() {
    let mut run = script("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 1; done");
    run.plan.grace = LONG;
    let mut run = run.launch();
    assert_eq!(run.line(), "ready");
    let report = run.stop(LONG).unwrap();
    assert!(report.killed.is_empty(), "{report:?}");
    let (output, exited) = run.finish();
    assert_eq!((output.as_str(), exited.code), ("bye\n", Some(3)));
}

#[test]
fn a_stop_at_once_kills_from_outside() {
    let mut setup = script("trap '' TERM; echo ready; while :; do sleep 1; done");
    setup.plan.grace = LONG;
    let mut run = setup.launch();
    assert_eq!(run.line(), "ready");
    let report = run.stop(Duration::ZERO).unwrap();
    assert!(!report.killed.is_empty());
    assert_eq!(
        run.exited().signal,
        Some(9),
        "the shim was left to report it"
    );
}

#[test]
fn no_agent_outlives_its_daemon() {
    let text = "trap '' TERM; setsid sleep 1000 & echo $!; echo $$; while :; do sleep 1; done";
    let mut run = script(text).launch();
    let (daemon, agent) = (run.named(), run.named());
    let shim = run.shim().clone();
    drop(run.running.take());
    for process in [&shim, &daemon, &agent] {
        wait_gone(process);
    }
}

#[test]
fn when_the_shim_is_killed_the_rest_is_found_by_its_mark() {
    let text = "setsid sh -c 'sleep 1000 & echo $!'; echo $$; exec sleep 1000";
    let mut run = script(text).launch();
    let (daemon, agent) = (run.named(), run.named());
    assert!(descendants(run.shim()).unwrap().contains(&daemon));
    kill(run.shim());
    // The kernel takes the agent along, and nobody the daemon.
    wait_gone(&agent);
    assert_eq!(is_alive(&daemon), Presence::Alive);
    assert_eq!(
        sweep(run.target.run).unwrap().as_slice(),
        std::slice::from_ref(&daemon)
    );

    let report = run.stop(GRACE).unwrap();
    assert_eq!(
        (report.was_running, report.killed),
        (false, vec![daemon.clone()])
    );
    assert_eq!(is_alive(&daemon), Presence::Gone);
    assert_eq!(
        run.stop(GRACE).unwrap().killed,
        [],
        "twice is as good as once"
    );
}

#[test]
fn a_control_group_finds_what_hides_from_everything_else() {
    let layers = probe(identity());
    let mut setup = script("env -i setsid sh -c 'sleep 1000 & echo $!'; exec sleep 1000");
    setup.plan.cgroup = layers.cgroup_of(setup.plan.run);
    let Some(group) = setup.plan.cgroup.clone() else {
        eprintln!("SKIP control groups: no place for them on this host");
        return;
    };
    let mut run = setup.launch();
    let hidden = run.named();
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap();
    assert!(
        members.lines().any(|pid| pid == hidden.pid.to_string()),
        "{members}"
    );
    kill(run.shim());
    assert!(!sweep(run.target.run).unwrap().contains(&hidden));

    let report = run.stop(GRACE).unwrap();
    assert!(report.killed.contains(&hidden), "{report:?}");
    assert_eq!(is_alive(&hidden), Presence::Gone);
    assert!(!group.exists());
    assert_eq!(
        cgroup::find_parent(),
        layers.cgroup_parent,
        "and no trial is left"
    );
}

#[test]
fn a_reused_pid_is_never_signalled() {
    let mut run = script("echo ready; exec sleep 1000").launch();
    assert_eq!(run.line(), "ready");
    let agent = identify(run.running().child_pid).unwrap().unwrap();
    let impostors = [
        ProcessIdentity {
            start_time: agent.start_time - 1,
            ..agent.clone()
        },
        ProcessIdentity {
            boot_id: "4".repeat(36),
            ..agent.clone()
        },
    ];
    for impostor in impostors {
        let target = StopTarget {
            identity: Some(impostor),
            run: fresh_run(),
            cgroup: None,
        };
        let report = stop(&target, GRACE).unwrap();
        assert_eq!((report.was_running, report.killed), (false, vec![]));
        assert_eq!(is_alive(&agent), Presence::Alive);
    }
    assert_eq!(
        descendants(&ProcessIdentity {
            start_time: 0,
            ..agent
        })
        .unwrap(),
        []
    );
}

#[test]
fn we_do_not_stop_ourselves() {
    let own = identify(std::process::id()).unwrap();
    let target = StopTarget {
        identity: own,
        run: fresh_run(),
        cgroup: None,
    };
    let refusal = stop(&target, Duration::ZERO);
    assert!(
        matches!(refusal, Err(StopError::Ourselves(_))),
        "{refusal:?}"
    );
    let target = StopTarget {
        identity: None,
        cgroup: Some(PathBuf::from("/sys/fs/cgroup")),
        ..target
    };
    let refusal = stop(&target, Duration::ZERO);
    assert!(matches!(refusal, Err(StopError::Cgroup(_))), "{refusal:?}");
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
        assert_eq!((got.trim_start(), exited.code), (output, code), "{text}");
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
        (change(missing), Stage::Exec, Some(libc_errno::ENOENT)),
        (
            change(|program| program.argv = vec!["/".to_owned()]),
            Stage::Exec,
            Some(libc_errno::EACCES),
        ),
        (change(|program| program.argv = vec![]), Stage::Exec, None),
        (
            change(|program| program.cwd = PathBuf::from("/no/such/place")),
            Stage::WorkingDirectory,
            Some(libc_errno::ENOENT),
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

mod libc_errno {
    pub(super) const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
    pub(super) const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
}

/// A shim without the driver, for what the driver would never say.
struct BareShim {
    child: Child,
    control: UnixStream,
    decoder: Decoder,
}

impl BareShim {
    #[expect(clippy::disallowed_methods, reason = "the shim itself is under test")]
    fn start() -> Self {
        let (control, theirs) = UnixStream::pair().unwrap();
        let child = Command::new(shim_binary())
            .args(["shim", "run"])
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut shim = Self {
            child,
            control,
            decoder: Decoder::default(),
        };
        let started = shim.hear();
        assert!(matches!(started, Report::Started(_)), "{started:?}");
        shim
    }

    fn hear(&mut self) -> Report {
        next_report(&mut self.control, &mut self.decoder)
    }

    /// What it answers to `bytes`, after which it has ended.
    fn last_words(mut self, bytes: &[u8]) -> Failed {
        self.control.write_all(bytes).unwrap();
        let report = self.hear();
        assert_eq!(self.child.wait().unwrap().code(), Some(1));
        match report {
            Report::Failed(failed) => failed,
            other => panic!("no failure: {other:?}"),
        }
    }
}

fn prepare_as(version: u32, uid: u32) -> Vec<u8> {
    control::encode(&Order::Prepare(Prepare {
        version,
        uid,
        gid: identity().gid(),
        cgroup: None,
        grace_ms: 0,
    }))
    .unwrap()
}

#[test]
fn the_shim_refuses_what_it_should_not_do() {
    let uid = identity().uid();
    let launch = Order::Launch(Launch {
        argv: vec!["true".to_owned()],
        env: BTreeMap::new(),
        cwd: PathBuf::from("/"),
        stdin: String::new(),
    });
    let launch = control::encode(&launch).unwrap();
    let secret = br#"{"type":"launch","argv":"s3cret"}"#;
    let cases = [
        (prepare_as(VERSION + 1, uid), Stage::Protocol, "version 2"),
        (prepare_as(VERSION, 0), Stage::Identity, "root"),
        (launch, Stage::Protocol, "before"),
        (b"hello\n".to_vec(), Stage::Protocol, "not an order"),
        (
            [secret.as_slice(), b"\n"].concat(),
            Stage::Protocol,
            "not an order",
        ),
        (
            vec![b' '; control::MAX_MESSAGE],
            Stage::Protocol,
            "more than",
        ),
    ];
    for (bytes, stage, words) in cases {
        let failed = BareShim::start().last_words(&bytes);
        assert_eq!(failed.stage, stage, "{failed}");
        assert!(failed.message.contains(words), "{failed}");
        assert!(!failed.message.contains("s3cret"), "{failed}");
    }
}

#[test]
fn a_shim_that_waits_for_orders_ends_when_told_or_alone() {
    let mut shim = BareShim::start();
    drop(shim.control);
    assert_eq!(shim.child.wait().unwrap().code(), Some(0));

    let mut shim = BareShim::start();
    let identity = identify(shim.child.id()).unwrap().unwrap();
    let handle = Pidfd::open(&identity).unwrap().unwrap();
    assert!(handle.signal(Signal::TERM).unwrap());
    assert_eq!(shim.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_daemon_refuses_a_shim_that_is_not_its_own() {
    let own = identify(std::process::id()).unwrap().unwrap();
    let own = serde_json::to_string(&own).unwrap();
    let refusal = |line: &str| start_script(&format!("echo '{line}' >&0; exec sleep 1000"));

    let error = refusal(r#"{"type":"started","version":2,"who":"me"}"#);
    assert!(
        matches!(
            error,
            LaunchError::Control(ControlError::Version { theirs: 2 })
        ),
        "{error:?}"
    );
    let error = refusal(&format!(
        r#"{{"type":"started","version":1,"identity":{own}}}"#
    ));
    assert!(matches!(error, LaunchError::Impostor { .. }), "{error:?}");
    let error = refusal(r#"{"type":"running","childPid":1}"#);
    assert!(
        matches!(error, LaunchError::OutOfOrder("started")),
        "{error:?}"
    );
    let error = start_script("exit 0");
    assert!(matches!(error, LaunchError::Ended), "{error:?}");
    let error = none::start(Path::new("/no/such/shim")).unwrap_err();
    assert!(matches!(error, LaunchError::Spawn { .. }), "{error:?}");
}

/// The error of a start with a shell script in place of the shim.
fn start_script(text: &str) -> LaunchError {
    let directory = tempfile::TempDir::new().unwrap();
    let program = directory.path().join("shim");
    // Written by a child, so that no descriptor open for writing keeps the file from being executed.
    write_program(&program, &format!("#!/bin/sh\n{text}\n"));
    none::start(&program).unwrap_err()
}

#[expect(clippy::disallowed_methods, reason = "a tool of the test")]
fn write_program(path: &Path, text: &str) {
    let mut child = Command::new("/bin/sh")
        .args(["-c", "cat > \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what a person would type")]
fn by_hand_the_shim_explains_itself() {
    for args in [
        vec!["shim", "run"],
        vec!["shim"],
        vec!["shim", "run", "x"],
        vec!["shim", "y"],
    ] {
        let output: io::Result<Output> = Command::new(shim_binary())
            .args(&args)
            .stdin(Stdio::null())
            .output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with("homeostat shim: the daemon starts this"),
            "{said}"
        );
    }
}
