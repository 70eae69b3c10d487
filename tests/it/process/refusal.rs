//! What daemon and shim do not take from each other.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use homeostat::process::control::{
    self, ControlError, Decoder, Failed, Launch, Order, Prepare, Report, Stage, VERSION,
};
use homeostat::process::{Pidfd, identify};
use homeostat::sandbox::{LaunchError, none};
use rustix::process::Signal;

use super::rig::{identity, next_report, shim_binary};

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
        keeps_stdin: false,
    });
    let launch = control::encode(&launch).unwrap();
    let secret = br#"{"type":"launch","argv":"s3cret"}"#;
    let cases = [
        (prepare_as(VERSION + 1, uid), Stage::Protocol, "version 3"),
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

    let other = VERSION + 1;
    let error = refusal(&format!(
        r#"{{"type":"started","version":{other},"who":"me"}}"#
    ));
    assert!(
        matches!(
            error,
            LaunchError::Control(ControlError::Version { theirs }) if theirs == other
        ),
        "{error:?}"
    );
    let error = refusal(&format!(
        r#"{{"type":"started","version":{VERSION},"identity":{own}}}"#
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
